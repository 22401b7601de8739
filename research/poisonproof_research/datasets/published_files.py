"""Readers of the published files of MNIST, Fashion-MNIST, CIFAR-10 and GTSRB."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.image_files import channels_first, decode_image, resized
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting
from poisonproof.strict import parse_json, read_npz
from poisonproof_research.datasets.entries import SPLITS, EntryWriter, Split, put_split
from poisonproof_research.datasets.file_trees import MEBIBYTE, FileTree, read_at_most, unreadable
from poisonproof_research.datasets.pickled_batch import read_pickled_batch

# MNIST and Fashion-MNIST: idx files, plain or compressed, or one npz file.

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


# CIFAR-10: binary batches, python batches, or six PNG files with labels in JSON.

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
"""The published names of the batches, in the order of the dataset."""

SHAPE = (3, 32, 32)
VALUES = 3 * 32 * 32
CIFAR_LIMIT = 128 * MEBIBYTE  # a batch has 30 MiB


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
    """Return the MD5 of every batch, written in the published binary form."""
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
    data = np.frombuffer(tree.read(path, CIFAR_LIMIT), np.uint8)
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
    images, labels = read_pickled_batch(tree.read(path, CIFAR_LIMIT), where)
    if images.shape[1:] != (VALUES,):
        raise InvalidInputError(f"{where} has rows of shape {images.shape[1:]}, not ({VALUES},).")
    return Split(images, labels, where)


def _png(tree: FileTree, split: str, name: str) -> Split:
    """Read one image per row of 1,024 pixels; the labels of all batches lie in one JSON file."""
    path = _needed(tree, f"{name}.png")
    where = tree.where(path)
    pixels = np.asarray(decode_image(tree.read(path, CIFAR_LIMIT), where))
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
        labels = parse_json(tree.read(path, CIFAR_LIMIT))
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise ValueError("integers between [ and ] are needed")
        return np.array(labels, dtype=np.int64), where
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{where} is not a list of labels: {error}.") from error


# GTSRB: the official folders of PPM files, with a CSV file beside each class and one for the test.
#
# Images are kept at their own size, for hashing, and resized for training: plainly, and after
# histogram equalisation.

GTSRB_N_CLASSES = 43
GTSRB_SIDE = 48
GTSRB_LIMIT = 16 * MEBIBYTE
LARGEST_SIDE = 4096
COLUMNS = ("Filename", "Width", "Height", "ClassId")
TRAINING = r"(?:^|/)Final_Training/Images/\d{5}/[^/]+$"
TEST_IMAGES = r"(?:^|/)Final_Test/Images/[^/]+\.ppm$"
TEST_LABELS = "GT-final_test.csv"


@dataclass(frozen=True)
class _SignFile:
    """One line of a CSV file: an image, what it should measure, and its class."""

    path: str
    width: int
    height: int
    label: int


def read_gtsrb(tree: FileTree, entry: EntryWriter, progress: Progress) -> None:
    """Read both splits, in the order of classes and of the lines in the CSV files."""
    import PIL

    splits = {"train": _training_rows(tree), "test": _test_rows(tree)}
    entry.details["resize"] = f"Pillow {PIL.__version__}, bilinear, {GTSRB_SIDE} x {GTSRB_SIDE}"
    entry.details["equalize"] = "Pillow ImageOps.equalize, per channel, before the resize"
    for split, rows in splits.items():
        with reporting(progress, len(rows), f"reading {split} images"):
            _write_images(tree, entry, split, rows, progress)


def _write_images(
    tree: FileTree, entry: EntryWriter, split: str, rows: Sequence[_SignFile], progress: Progress
) -> None:
    from PIL.ImageOps import equalize

    shapes = np.array([(3, row.height, row.width) for row in rows], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(shapes.prod(axis=1))])
    entry.put(f"originals_{split}_shapes", shapes, np.int64)
    entry.put(f"originals_{split}_offsets", offsets, np.int64)
    entry.put(f"y_{split}", np.array([row.label for row in rows]), np.int64)
    values = entry.create(f"originals_{split}_values", (int(offsets[-1]),), np.uint8)
    plain = entry.create(f"x_{split}", (len(rows), 3, GTSRB_SIDE, GTSRB_SIDE), np.uint8)
    equal = entry.create(f"x_{split}_equalized", (len(rows), 3, GTSRB_SIDE, GTSRB_SIDE), np.uint8)
    for i, row in enumerate(rows):
        where = tree.where(row.path)
        image = decode_image(tree.read(row.path, GTSRB_LIMIT), where)
        if image.size != (row.width, row.height):
            raise InvalidInputError(
                f"{where} has {image.width} x {image.height} pixels, but its CSV file says "
                f"{row.width} x {row.height}."
            )
        values[offsets[i] : offsets[i + 1]] = channels_first(image).reshape(-1)
        plain[i] = channels_first(resized(image, GTSRB_SIDE, GTSRB_SIDE))
        equal[i] = channels_first(resized(equalize(image), GTSRB_SIDE, GTSRB_SIDE))
        progress.advance()


def _training_rows(tree: FileTree) -> list[_SignFile]:
    folders: dict[str, list[str]] = {}
    for path in tree.matching(TRAINING):
        folders.setdefault(str(PurePosixPath(path).parent), []).append(path)
    if not folders:
        raise InvalidInputError(f"{tree.where('')} lacks Final_Training/Images/00000 and so on.")
    rows = []
    for folder, paths in sorted(folders.items(), key=lambda item: PurePosixPath(item[0]).name):
        label = int(PurePosixPath(folder).name)
        listed = f"{folder}/GT-{label:05d}.csv"
        if listed not in paths:
            raise InvalidInputError(f"{tree.where(listed)} is missing: it lists the images there.")
        here = _csv_rows(tree, listed, folder, paths)
        for row in here:
            if row.label != label:
                raise InvalidInputError(
                    f"{tree.where(listed)} gives {row.path} the class {row.label}, but it lies in "
                    f"the folder of class {label}."
                )
        rows.extend(here)
    if not rows:
        raise InvalidInputError(f"{tree.where('')} has training folders without images.")
    return rows


def _test_rows(tree: FileTree) -> list[_SignFile]:
    paths = tree.matching(TEST_IMAGES)
    if not paths:
        raise InvalidInputError(f"{tree.where('')} lacks Final_Test/Images/00000.ppm and so on.")
    listed = tree.one(TEST_LABELS)
    if listed is None:
        raise InvalidInputError(
            f"{tree.where('')} lacks {TEST_LABELS}, the labels of the test images "
            "(GT-final_test.test.csv has none)."
        )
    return _csv_rows(tree, listed, str(PurePosixPath(paths[0]).parent), paths)


def _csv_rows(tree: FileTree, listed: str, folder: str, paths: Iterable[str]) -> list[_SignFile]:
    """Read one CSV file and check that it names the images in `paths`, each once."""
    where = tree.where(listed)
    waiting = {path for path in paths if path.endswith(".ppm")}
    rows = []
    for number, line in _csv_lines(tree.read(listed, GTSRB_LIMIT), where):
        row = _row(line, folder, f"{where}, line {number}")
        if row.path not in waiting:
            raise InvalidInputError(
                f"{where}, line {number} names {line['Filename']}, which is not in "
                f"{tree.where(folder)} or was named before."
            )
        waiting.remove(row.path)
        rows.append(row)
    if waiting:
        raise InvalidInputError(f"{where} does not name {tree.where(min(waiting))}.")
    return rows


def _csv_lines(data: bytes, where: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines of a CSV file after its first, by column, with their numbers."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{where} is not text: {error}.") from error
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=";")
    try:
        if not set(COLUMNS) <= set(lines.fieldnames or ()):
            raise InvalidInputError(
                f"{where} needs the columns {';'.join(COLUMNS)} in its first line."
            )
        for line in lines:
            yield lines.line_num, line
    except csv.Error as error:
        raise InvalidInputError(f"{where}, after line {lines.line_num}: {error}.") from error


def _row(line: dict[str, str], folder: str, where: str) -> _SignFile:
    try:
        width, height, label = (int(line[key]) for key in COLUMNS[1:])
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{where}: Width, Height and ClassId must be integers.") from error
    if not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE:
        raise InvalidInputError(f"{where}: {width} x {height} is not the size of a traffic sign.")
    if not 0 <= label < GTSRB_N_CLASSES:
        raise InvalidInputError(f"{where}: class {label} is not one of 0 to {GTSRB_N_CLASSES - 1}.")
    return _SignFile(f"{folder}/{line['Filename']}", width, height, label)
