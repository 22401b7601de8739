"""Small files in the published formats."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from poisonproof_research.datasets.published_files import BATCHES, IDX_FILES

CIFAR_ROWS = 4
SIGN_SIZES = ((31, 25), (25, 40), (48, 48), (60, 52))
"""Height and width of the images of each traffic sign."""


def mnist_arrays(seed: int = 0) -> dict[str, NDArray[np.uint8]]:
    draw = np.random.default_rng(seed)
    return {
        "x_train": draw.integers(0, 256, (30, 28, 28), dtype=np.uint8),
        "y_train": draw.integers(0, 10, 30, dtype=np.uint8),
        "x_test": draw.integers(0, 256, (12, 28, 28), dtype=np.uint8),
        "y_test": draw.integers(0, 10, 12, dtype=np.uint8),
    }


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_idx(folder: Path, seed: int = 0, *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for key, array in mnist_arrays(seed).items():
        data = idx_bytes(array)
        name = IDX_FILES[key] + (".gz" if packed else "")
        (folder / name).write_bytes(gzip.compress(data) if packed else data)
    return folder


def cifar_batches() -> dict[str, tuple[NDArray[np.uint8], list[int]]]:
    draw = np.random.default_rng(1)
    return {
        name: (
            draw.integers(0, 256, (CIFAR_ROWS, 3072), dtype=np.uint8),
            draw.integers(0, 10, CIFAR_ROWS).tolist(),
        )
        for name in [*BATCHES["train"], *BATCHES["test"]]
    }


def binary_batch(images: NDArray[np.uint8], labels: list[int]) -> bytes:
    return np.concatenate([np.array(labels, np.uint8)[:, None], images], axis=1).tobytes()


def write_cifar_binary(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches().items():
        (folder / f"{name}.bin").write_bytes(binary_batch(images, labels))
    return folder


def write_cifar_archive(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, (images, labels) in cifar_batches().items():
            data = binary_batch(images, labels)
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return folder / "cifar-10-binary.tar.gz"


def python_batch(images: NDArray[np.uint8], labels: list[int]) -> bytes:
    """Return a batch with the instructions that Python 2 wrote (protocol 2, byte strings)."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    rows = b"M" + struct.pack("<H", len(images))
    width = b"M" + struct.pack("<H", images.shape[1])
    data = images.tobytes()
    return b"".join(
        [
            b"\x80\x02}q\x01(",
            text(b"batch_label"), b"q\x02", text(b"training batch 1 of 5"), b"q\x03",
            text(b"labels"), b"q\x04]q\x05(", *(b"K" + bytes([label]) for label in labels), b"e",
            text(b"data"), b"q\x06",
            b"cnumpy.core.multiarray\n_reconstruct\nq\x07",
            b"cnumpy\nndarray\nq\x08K\x00\x85q\x09", text(b"b"), b"q\x0a\x87q\x0bRq\x0c",
            b"(K\x01", rows, width, b"\x86q\x0d",
            b"cnumpy\ndtype\nq\x0e", text(b"u1"), b"q\x0fK\x00K\x01\x87q\x10Rq\x11",
            b"(K\x03", text(b"|"), b"q\x12NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T", struct.pack("<I", len(data)), data, b"q\x13tb",
            text(b"filenames"), b"q\x14]q\x15(", text(b"a.png"), b"q\x16h\x16eu.",
        ]
    )  # fmt: skip


def write_cifar_python(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches().items():
        (folder / name).write_bytes(python_batch(images, labels))
    return folder


def write_cifar_png(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    batches = cifar_batches()
    for name, (images, _) in batches.items():
        pixels = images.reshape(-1, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"{name}.png")
    for split, names in BATCHES.items():
        labels = [label for name in names for label in batches[name][1]]
        (folder / f"{split}_lables.json").write_text(json.dumps(labels))
    return folder


def sign(label: int, number: int) -> NDArray[np.uint8]:
    height, width = SIGN_SIZES[(label + number) % len(SIGN_SIZES)]
    draw = np.random.default_rng([label, number])
    return draw.integers(20, 200, (height, width, 3), dtype=np.uint8)


def write_gtsrb(folder: Path) -> Path:
    """Write three classes of three training images, and four test images."""
    header = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"
    for label in range(3):
        here = folder / "GTSRB" / "Final_Training" / "Images" / f"{label:05d}"
        here.mkdir(parents=True)
        lines = [header]
        for number in range(3):
            name = f"00000_{number:05d}.ppm"
            lines.append(_write_sign(here / name, sign(label, number), label))
        (here / f"GT-{label:05d}.csv").write_text("\r\n".join([*lines, ""]), newline="")
    here = folder / "GTSRB" / "Final_Test" / "Images"
    here.mkdir(parents=True)
    lines = [header]
    for number in range(4):
        lines.append(_write_sign(here / f"{number:05d}.ppm", sign(9, number), number % 3))
    (folder / "GT-final_test.csv").write_text("\r\n".join([*lines, ""]), newline="")
    (here / "GT-final_test.test.csv").write_text("Filename;Width;Height\r\n", newline="")
    return folder


def _write_sign(path: Path, pixels: NDArray[np.uint8], label: int) -> str:
    Image.fromarray(pixels).save(path)
    return f"{path.name};{pixels.shape[1]};{pixels.shape[0]};1;1;2;2;{label}"


def zip_folder(folder: Path, archive: Path, method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(archive, "w", method) as target:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target.write(path, path.relative_to(folder).as_posix())
    return archive


def tar_folder(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as target:
        target.add(folder, arcname=".")
    return archive
