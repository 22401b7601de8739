"""Data on the way to another machine: checked chunks that hold only what a row needs.

The originals of resized images stay at home; their pixel sums travel, and decide the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.pixel_coding import decode_pixels, encode_pixels
from poisonproof.reproduction.row_data import RowData
from poisonproof.reproduction.whole_files import (
    npz_bytes,
    read_json,
    read_npz,
    sha256,
    write_bytes,
    write_json,
)

__all__ = ["MANIFEST", "data_from_pack", "write_pack"]

FORMAT = "poisonproof data pack"
VERSION = 1
MANIFEST = "manifest.json"
_THREADS = 8


def write_pack(data: RowData, folder: Path, *, largest: int = 24_000_000) -> list[Path]:
    """Write the data of a dataset as npz chunks.

    Parameters
    ----------
    data : RowData
        The data.
    folder : Path
        Made if absent. The manifest is written last.
    largest : int
        Bytes of pixels in one chunk before compression: no chunk gets larger than this.

    Returns
    -------
    list of Path
        The chunks, then the manifest.
    """
    chunks, paths = [], []
    for number, (split, start, stop) in enumerate(_pieces(data, largest)):
        content = npz_bytes(_arrays(data, split, slice(start, stop)))
        path = folder / f"{data.name}-{number:03d}.npz"
        write_bytes(path, content)
        chunks.append(
            {
                "file": path.name,
                "sha256": sha256(content),
                "split": split,
                "start": start,
                "stop": stop,
            }
        )
        paths.append(path)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": data.name,
        "n_classes": data.n_classes,
        "digest": data.digest,
        "shapes": {"train": list(data.x_train.shape), "test": list(data.x_test.shape)},
        "chunks": chunks,
    }
    write_json(folder / MANIFEST, manifest)
    return [*paths, folder / MANIFEST]


def data_from_pack(folder: Path) -> RowData:
    """Read what `write_pack` wrote, and check every digest.

    Raises
    ------
    InvalidInputError
        If a chunk is missing, damaged, or does not fit the others.
    """
    manifest = read_json(folder / MANIFEST, FORMAT, VERSION)
    try:
        shapes = {split: tuple(shape) for split, shape in manifest["shapes"].items()}
        arrays = {
            split: {
                "x": np.empty(shape, np.uint8),
                "y": np.empty(shape[0], np.int64),
                "sums": np.empty(shape[0], np.int64),
                "ranks": np.full(shape[0], -1, np.int64),
            }
            for split, shape in shapes.items()
        }
        missing = [c["file"] for c in manifest["chunks"] if not (folder / c["file"]).is_file()]
        if missing:
            raise InvalidInputError(f"{folder} lacks the chunks {', '.join(missing)}.")
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda chunk: _fill(folder, chunk, arrays), manifest["chunks"]))
        data = RowData(
            manifest["name"],
            manifest["n_classes"],
            arrays["train"]["x"],
            arrays["train"]["y"],
            arrays["test"]["x"],
            arrays["test"]["y"],
            arrays["train"]["sums"],
            None if (ranks := arrays["train"]["ranks"]).min() < 0 else ranks,
        )
        expected = manifest["digest"]
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidInputError(f"{folder / MANIFEST} is incomplete: {error}.") from error
    if data.digest != expected:
        raise InvalidInputError(
            f"{folder} is not what was packed: its digest is {data.digest}, not {expected}."
        )
    return data


def _pieces(data: RowData, largest: int) -> Iterator[tuple[str, int, int]]:
    for split, images in (("train", data.x_train), ("test", data.x_test)):
        step = max(1, largest // images[:1].nbytes)
        for start in range(0, len(images), step):
            yield split, start, min(start + step, len(images))


def _arrays(data: RowData, split: str, rows: slice) -> dict[str, NDArray[Any]]:
    if split == "test":
        return {"x": encode_pixels(data.x_test[rows]), "y": data.y_test[rows]}
    ranks = {} if data.ranks is None else {"ranks": data.ranks[rows]}
    return {
        "x": encode_pixels(data.x_train[rows]),
        "y": data.y_train[rows],
        "sums": data.sums[rows],
        **ranks,
    }


def _fill(folder: Path, chunk: dict[str, Any], arrays: dict[str, dict[str, NDArray[Any]]]) -> None:
    rows = slice(chunk["start"], chunk["stop"])
    target = arrays[chunk["split"]]
    path = folder / chunk["file"]
    for name, values in read_npz(path, chunk["sha256"]).items():
        if name not in target or values.shape != target[name][rows].shape:
            raise InvalidInputError(f"{path} does not fit the manifest.")
        target[name][rows] = decode_pixels(values) if name == "x" else values
