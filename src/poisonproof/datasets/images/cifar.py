"""CIFAR-10: binary batches, python batches, or six PNG files with labels in JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.file_tree import MEBIBYTE, FileTree
from poisonproof.datasets.images.pickled_batch import read_pickled_batch
from poisonproof.datasets.images.pixels import decode_image
from poisonproof.datasets.images.splits import Split, put_split
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting
from poisonproof.strict import parse_json

__all__ = ["BATCHES", "batch_md5s", "read_cifar10"]

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
"""The published names of the batches, in the order of the dataset."""

SHAPE = (3, 32, 32)
VALUES = 3 * 32 * 32
N_CLASSES = 10
LIMIT = 128 * MEBIBYTE  # a batch has 30 MiB


def read_cifar10(tree: FileTree, entry: EntryWriter, progress: Progress) -> None:
    """Read CIFAR-10 in whichever form it lies there."""
    read = _form(tree)
    with reporting(progress, sum(map(len, BATCHES.values())), "reading batches"):
        for split, names in BATCHES.items():
            batches = []
            for name in names:
                batches.append(read(tree, split, name))
                progress.advance()
            images = np.concatenate([batch.images for batch in batches]).reshape(-1, *SHAPE)
            labels = np.concatenate([batch.labels for batch in batches])
            put_split(entry, split, Split(images, labels, batches[0].where), N_CLASSES)


def batch_md5s(images: NDArray[np.uint8], labels: NDArray[Any], batch_size: int) -> list[str]:
    """Return the MD5 of every batch, written in the published binary form.

    Parameters
    ----------
    images : ndarray of shape (n, 3, 32, 32)
        Images in the published order.
    labels : ndarray of shape (n,)
        Their labels.
    batch_size : int
        Images per batch: 10,000 in the published files.
    """
    md5s = []
    for start in range(0, len(images), batch_size):
        rows = images[start : start + batch_size].reshape(-1, VALUES)
        column = labels[start : start + batch_size].astype(np.uint8)[:, None]
        batch = np.concatenate([column, rows], axis=1)
        md5s.append(hashlib.md5(batch.data, usedforsecurity=False).hexdigest())
    return md5s


def _form(tree: FileTree) -> Callable[[FileTree, str, str], Split]:
    first = BATCHES["train"][0]
    found = tree.matching(rf"(?:^|/){first}(?:\.bin|\.png)?$")
    for suffix, read in ((".bin", _binary), (".png", _png), ("", _python)):
        if any(path.endswith(first + suffix) for path in found):
            return read
    raise InvalidInputError(
        f"{tree.where('')} lacks {first}.bin, {first} and {first}.png: it holds CIFAR-10 in none "
        "of the forms binary batches, python batches or PNG files."
    )


def _needed(tree: FileTree, name: str) -> str:
    path = tree.one(name)
    if path is None:
        raise InvalidInputError(f"{tree.where('')} lacks {name}.")
    return path


def _binary(tree: FileTree, split: str, name: str) -> Split:
    path = _needed(tree, f"{name}.bin")
    data = np.frombuffer(tree.read(path, LIMIT), np.uint8)
    if len(data) == 0 or len(data) % (VALUES + 1):
        raise InvalidInputError(
            f"{tree.where(path)} is truncated: {len(data):,} bytes are not a number of whole "
            f"records of {VALUES + 1:,} bytes."
        )
    rows = data.reshape(-1, VALUES + 1)
    return Split(rows[:, 1:], rows[:, 0], tree.where(path))


def _python(tree: FileTree, split: str, name: str) -> Split:
    path = _needed(tree, name)
    where = tree.where(path)
    images, labels = read_pickled_batch(tree.read(path, LIMIT), where)
    if images.shape[1:] != (VALUES,):
        raise InvalidInputError(f"{where} has rows of shape {images.shape[1:]}, not ({VALUES},).")
    return Split(images, labels, where)


def _png(tree: FileTree, split: str, name: str) -> Split:
    """Read one image per row of 1,024 pixels; the labels of all batches lie in one JSON file."""
    path = _needed(tree, f"{name}.png")
    where = tree.where(path)
    pixels = np.asarray(decode_image(tree.read(path, LIMIT), where))
    if pixels.shape[1] != VALUES // 3:
        raise InvalidInputError(f"{where} is {pixels.shape[1]} pixels wide, not {VALUES // 3}.")
    images = pixels.transpose(0, 2, 1).reshape(-1, VALUES)
    labels, listed = _png_labels(tree, split)
    if len(labels) != len(images) * len(BATCHES[split]):
        raise InvalidInputError(
            f"{where} holds {len(images):,} images, but {listed} has {len(labels):,} labels for "
            f"{len(BATCHES[split])} such batches."
        )
    start = BATCHES[split].index(name) * len(images)
    return Split(images, labels[start : start + len(images)], where)


def _png_labels(tree: FileTree, split: str) -> tuple[NDArray[np.int64], str]:
    path = _needed(tree, f"{split}_lables.json")  # as the package spells it
    where = tree.where(path)
    try:
        labels = parse_json(tree.read(path, LIMIT))
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise ValueError("whole numbers between [ and ] are needed")
        return np.array(labels, dtype=np.int64), where
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{where} is not a list of labels: {error}.") from error
