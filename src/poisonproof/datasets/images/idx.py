"""MNIST and Fashion-MNIST: idx files, plain or compressed, or one npz file."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.archives import unreadable
from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.file_tree import MEBIBYTE, FileTree, read_at_most
from poisonproof.datasets.images.splits import SPLITS, Split, put_split
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting
from poisonproof.strict import read_npz

__all__ = ["IDX_FILES", "idx_md5", "parse_idx", "read_mnist"]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
"""The published name of each array."""

LIMIT = 256 * MEBIBYTE  # the largest published file has 45 MiB
UNSIGNED_BYTE = 8  # the code of the type in an idx header
SIDE = 28
N_CLASSES = 10


def read_mnist(tree: FileTree, entry: EntryWriter, progress: Progress) -> None:
    """Read the four arrays from idx files, or else from the only npz file."""
    with reporting(progress, len(SPLITS), "reading images"):
        for split in SPLITS:
            put_split(entry, split, _split(tree, split), N_CLASSES)
            progress.advance()


def parse_idx(data: bytes, dimensions: int, where: str) -> NDArray[np.uint8]:
    """Return the array in the bytes of an idx file of unsigned bytes.

    Examples
    --------
    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), 1, "labels")
    array([7, 9], dtype=uint8)
    """
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, UNSIGNED_BYTE, dimensions]):
        raise InvalidInputError(
            f"{where} is not an idx file of unsigned bytes in {dimensions} dimensions: it begins "
            f"with {data[:4].hex() or 'nothing'}."
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    if len(data) - header != math.prod(shape):
        raise InvalidInputError(
            f"{where} is truncated or too long: its header promises {math.prod(shape):,} values, "
            f"it holds {len(data) - header:,}."
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def idx_md5(array: NDArray[Any]) -> str:
    """Return the MD5 of the array written as an idx file, whatever form it was read from.

    Examples
    --------
    >>> idx_md5(np.array([7, 9]))
    '1e811a5578e179d1441be42edd440758'
    """
    header = bytes([0, 0, UNSIGNED_BYTE, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    digest = hashlib.md5(header, usedforsecurity=False)
    digest.update(np.ascontiguousarray(array, dtype=np.uint8).data)
    return digest.hexdigest()


def _split(tree: FileTree, split: str) -> Split:
    keys = (f"x_{split}", f"y_{split}")
    names = [IDX_FILES[key] for key in keys]
    paths = [_find(tree, name) for name in names]
    if paths[0] is not None and paths[1] is not None:
        images = parse_idx(_plain(tree, paths[0]), 3, tree.where(paths[0]))
        labels = parse_idx(_plain(tree, paths[1]), 1, tree.where(paths[1]))
        return _checked(Split(images, labels, tree.where(paths[0])))
    archives = tree.matching(r"\.npz$")
    if len(archives) == 1 and paths == [None, None]:
        where = tree.where(archives[0])
        images, labels = _npz_arrays(tree.read(archives[0], LIMIT), keys, where)
        return _checked(Split(images, labels, where))
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    also = f"; there are {len(archives)} npz files" if len(archives) > 1 else ""
    raise InvalidInputError(
        f"{tree.where('')} lacks {' and '.join(missing)} (plain or .gz){also}. One npz file with "
        "x_train, y_train, x_test and y_test is read too."
    )


def _find(tree: FileTree, name: str) -> str | None:
    other = name.replace("-idx", ".idx")  # as some archives of the original site spell it
    return tree.one(name, other) or tree.one(f"{name}.gz", f"{other}.gz")


def _plain(tree: FileTree, path: str) -> bytes:
    data = tree.read(path, LIMIT)
    if not path.endswith(".gz"):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as file:
            return read_at_most(file, LIMIT, tree.where(path))
    except InvalidInputError:
        raise
    except Exception as error:  # see `unreadable`
        raise unreadable(tree.where(path), error) from error


def _npz_arrays(data: bytes, keys: tuple[str, ...], where: str) -> list[NDArray[Any]]:
    try:
        found = read_npz(io.BytesIO(data), keys, largest=LIMIT)
    except KeyError as error:
        missing = next(key for key in keys if key not in error.args[0])
        raise InvalidInputError(f"{where} has no array {missing!r}.") from error
    except Exception as error:  # see `unreadable`
        raise unreadable(where, error) from error
    return [found[key] for key in keys]


def _checked(split: Split) -> Split:
    shape = split.images.shape
    if split.images.dtype != np.uint8 or shape[1:] != (SIDE, SIDE):
        raise InvalidInputError(
            f"{split.where} holds {split.images.dtype} of shape {shape}; images of uint8 and shape "
            f"(n, {SIDE}, {SIDE}) are needed."
        )
    if split.labels.ndim != 1 or split.labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"{split.where} has labels of shape {split.labels.shape} and dtype "
            f"{split.labels.dtype}; one integer per image is needed."
        )
    return split
