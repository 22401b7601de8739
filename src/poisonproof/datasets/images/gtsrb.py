"""GTSRB: the official folders of PPM files, with a CSV file beside each class and one for the test.

Images are kept at their own size, for hashing, and resized for training: plainly, and after
histogram equalisation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.file_tree import MEBIBYTE, FileTree
from poisonproof.datasets.images.pixels import (
    channels_first,
    decode_image,
    equalized,
    pillow_version,
    resized,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting

__all__ = ["N_CLASSES", "read_gtsrb"]

N_CLASSES = 43
SIDE = 48
LIMIT = 16 * MEBIBYTE
LARGEST_SIDE = 4096
COLUMNS = ("Filename", "Width", "Height", "ClassId")
TRAINING = r"(?:^|/)Final_Training/Images/\d{5}/[^/]+$"
TEST_IMAGES = r"(?:^|/)Final_Test/Images/[^/]+\.ppm$"
TEST_LABELS = "GT-final_test.csv"


@dataclass(frozen=True)
class _Row:
    """One line of a CSV file: an image, what it should measure, and its class."""

    path: str
    width: int
    height: int
    label: int


def read_gtsrb(tree: FileTree, entry: EntryWriter, progress: Progress) -> None:
    """Read both splits, in the order of classes and of the lines in the CSV files."""
    splits = {"train": _training_rows(tree), "test": _test_rows(tree)}
    entry.details["resize"] = f"Pillow {pillow_version()}, bilinear, {SIDE} x {SIDE}"
    entry.details["equalize"] = "Pillow ImageOps.equalize, per channel, before the resize"
    for split, rows in splits.items():
        with reporting(progress, len(rows), f"reading {split} images"):
            _write_images(tree, entry, split, rows, progress)


def _write_images(
    tree: FileTree, entry: EntryWriter, split: str, rows: Sequence[_Row], progress: Progress
) -> None:
    shapes = np.array([(3, row.height, row.width) for row in rows], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(shapes.prod(axis=1))])
    entry.put(f"originals_{split}_shapes", shapes, np.int64)
    entry.put(f"originals_{split}_offsets", offsets, np.int64)
    entry.put(f"y_{split}", np.array([row.label for row in rows]), np.int64)
    values = entry.create(f"originals_{split}_values", (int(offsets[-1]),), np.uint8)
    plain = entry.create(f"x_{split}", (len(rows), 3, SIDE, SIDE), np.uint8)
    equal = entry.create(f"x_{split}_equalized", (len(rows), 3, SIDE, SIDE), np.uint8)
    for i, row in enumerate(rows):
        where = tree.where(row.path)
        image = decode_image(tree.read(row.path, LIMIT), where)
        if image.size != (row.width, row.height):
            raise InvalidInputError(
                f"{where} has {image.width} x {image.height} pixels, but its CSV file says "
                f"{row.width} x {row.height}."
            )
        values[offsets[i] : offsets[i + 1]] = channels_first(image).reshape(-1)
        plain[i] = channels_first(resized(image, SIDE, SIDE))
        equal[i] = channels_first(resized(equalized(image), SIDE, SIDE))
        progress.advance()


def _training_rows(tree: FileTree) -> list[_Row]:
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


def _test_rows(tree: FileTree) -> list[_Row]:
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


def _csv_rows(tree: FileTree, listed: str, folder: str, paths: Iterable[str]) -> list[_Row]:
    """Read one CSV file and check that it names the images in `paths`, each once."""
    where = tree.where(listed)
    waiting = {path for path in paths if path.endswith(".ppm")}
    rows = []
    for number, line in _csv_lines(tree.read(listed, LIMIT), where):
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


def _row(line: dict[str, str], folder: str, where: str) -> _Row:
    try:
        width, height, label = (int(line[key]) for key in COLUMNS[1:])
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{where}: Width, Height and ClassId must be whole numbers."
        ) from error
    if not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE:
        raise InvalidInputError(f"{where}: {width} x {height} is not the size of a traffic sign.")
    if not 0 <= label < N_CLASSES:
        raise InvalidInputError(f"{where}: class {label} is not one of 0 to {N_CLASSES - 1}.")
    return _Row(f"{folder}/{line['Filename']}", width, height, label)
