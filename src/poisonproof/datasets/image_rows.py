"""Rows of a folder of images: one file is one row, its folder is its label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.pixels import channels_first, decode_image, resized
from poisonproof.datasets.images.trees import FolderTree, open_tree
from poisonproof.datasets.rows import RawRows, RowProblem
from poisonproof.datasets.value_text import escaped
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress, reporting
from poisonproof.schema import ImageColumn, Limits

__all__ = [
    "count_images",
    "hidden",
    "hidden_by_class",
    "image_parts",
    "printable",
    "read_image_rows",
    "refusal",
]


def read_image_rows(
    path: Path,
    column: ImageColumn,
    limits: Limits,
    *,
    labelled: bool,
    progress: Progress | None = None,
) -> RawRows:
    """Read every image below a folder, resized as declared.

    What is no image, is too large, a link or a pipe is rejected alone; hidden files, which file
    managers leave behind, are passed over. With `labelled` an image
    belongs in ``CLASS/`` below the folder, at any depth. `progress` is told of every file.
    """
    with _opened(path) as tree:
        files = _images(tree)
        with reporting(progress, len(files), "Reading images") as listener:
            read = _each(files, listener)
            return _read_files(tree, read, _left_out(tree), column, limits, labelled=labelled)


def _each(files: Sequence[str], progress: Progress) -> Iterator[str]:
    for file in files:
        yield file
        progress.advance()


def image_parts(
    path: Path,
    column: ImageColumn,
    limits: Limits,
    step: int,
    first: int = 0,
    last: int | None = None,
) -> Iterator[RawRows]:
    """Yield the labelled images of a folder, at most `step` at a time.

    Of all files, in the order of their names, those from `first` up to `last` are read; what is no
    file is told of where `first` is 0.
    """
    with _opened(path) as tree:
        problems = [] if first else _left_out(tree)
        files = _images(tree)[first:last]
        for start in range(0, max(1, len(files)), step):
            part = files[start : start + step]
            yield _read_files(tree, part, problems, column, limits, labelled=True)
            problems = []


def count_images(path: Path) -> int:
    """Return how many files a folder holds."""
    with _opened(path) as tree:
        return len(_images(tree))


@contextmanager
def _opened(path: Path) -> Iterator[FolderTree]:
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not a folder; this schema is of folders of images.")
    with open_tree(path) as tree:
        yield tree


def _images(tree: FolderTree) -> list[str]:
    return [file for file in tree.paths() if not hidden(file)]


def _left_out(tree: FolderTree) -> list[RowProblem]:
    return [RowProblem(printable(path), why) for path, why in tree.left_out if not hidden(path)]


def _read_files(
    tree: FolderTree,
    files: Iterable[str],
    problems: list[RowProblem],
    column: ImageColumn,
    limits: Limits,
    *,
    labelled: bool,
) -> RawRows:
    labels: list[str | None] = []
    places: list[str] = []
    images: list[NDArray[np.uint8]] = []
    for file in files:
        folder, _, below = file.partition("/")
        if labelled and not below:
            reason = "lies in no class: images belong in CLASS/"
            problems.append(RowProblem(printable(file), reason, label=True))
            continue
        try:
            pixels = _pixels(tree, file, column, limits)
        except InvalidInputError as error:
            problems.append(RowProblem(printable(file), refusal(error, tree, file)))
            continue
        images.append(pixels)
        labels.append(folder)
        places.append(printable(file))
    empty = np.empty((0, *column.shape), dtype=np.uint8)
    return RawRows(
        X=np.stack(images) if images else empty,
        labels=labels if labelled else None,
        groups=None,
        weights=None,
        names=None,
        places=places,
        unit="file",
        problems=problems,
    )


def hidden(path: str) -> bool:
    """Return whether a file, or a folder it lies in, is hidden: its name begins with a point.

    >>> hidden("cats/.DS_Store"), hidden(".git/cats/1.png"), hidden("cats/1.png")
    (True, True, False)
    """
    return any(part.startswith(".") for part in path.split("/"))


def hidden_by_class(path: Path) -> list[str]:
    """Return the files of a folder that are passed over because their class is hidden."""
    with _opened(path) as tree:
        return [printable(file) for file in tree.paths() if file.startswith(".") and "/" in file]


def printable(name: str) -> str:
    r"""Return a file name that any terminal can show, another one for every name.

    >>> printable("caf\udce9\x1b.png"), printable(r"caf\udce9\x1b.png")
    ('caf\\udce9\\x1b.png', 'caf\\\\udce9\\\\x1b.png')
    """
    return escaped(name.replace("\\", "\\\\"))


def _pixels(tree: FolderTree, file: str, column: ImageColumn, limits: Limits) -> NDArray[np.uint8]:
    data = tree.read(file, limits.file)
    image = decode_image(data, tree.where(file), "L" if column.gray else "RGB", limits.pixels)
    return channels_first(resized(image, column.height, column.width))


def refusal(error: InvalidInputError, tree: FolderTree, file: str) -> str:
    """Return the message without the path, which the place says already."""
    return str(error).removeprefix(f"{tree.where(file)} ").removesuffix(".")
