"""Folders of images in general: one folder per class.

``DIR/train/CLASS/*.png`` and ``DIR/test/CLASS/*.png``; without a folder ``train``, all of
``DIR/CLASS/*.png`` is the training set. Order: classes, then paths, by code point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.file_tree import MEBIBYTE
from poisonproof.datasets.images.pixels import (
    channels_first,
    decode_image,
    pillow_version,
    resized,
)
from poisonproof.datasets.images.ragged import RaggedImages
from poisonproof.datasets.images.splits import SPLITS, put_originals
from poisonproof.datasets.images.trees import FolderTree
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting

__all__ = ["FolderOptions", "read_folder"]

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
