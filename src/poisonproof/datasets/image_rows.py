"""Rows of a folder of images: one file is one row, its folder is its label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.file_tree import MEBIBYTE
from poisonproof.datasets.images.pixels import channels_first, decode_image, resized
from poisonproof.datasets.images.trees import FolderTree, open_tree
from poisonproof.datasets.rows import RawRows, RowProblem
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import ImageColumn

__all__ = ["printable", "read_image_rows"]

LIMIT = 64 * MEBIBYTE
"""The largest image file that is read."""


def read_image_rows(path: Path, column: ImageColumn, *, labelled: bool) -> RawRows:
    """Read every image below a folder, resized as declared.

    A file that is no image, is too large or is a link is rejected alone. With `labelled` an image
    belongs in ``CLASS/`` below the folder, at any depth.
    """
    if not path.is_dir():
        raise InvalidInputError(f"{path} is not a folder; this schema is of folders of images.")
    with open_tree(path) as tree:
        problems = [
            RowProblem(printable(link), "is a symbolic link; links are not followed")
            for link in tree.links
        ]
        labels: list[str | None] = []
        places: list[str] = []
        images: list[NDArray[np.uint8]] = []
        for file in tree.paths():
            folder, _, below = file.partition("/")
            try:
                if labelled and not below:
                    raise InvalidInputError("lies in no class: images belong in CLASS/")
                pixels = _pixels(tree, file, column)
            except InvalidInputError as error:
                problems.append(RowProblem(printable(file), _reason(error, tree, file)))
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


def printable(name: str) -> str:
    r"""Return a file name that any terminal can show.

    >>> printable("caf\udce9\x1b.png")
    'caf\\udce9\\x1b.png'
    """
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def _pixels(tree: FolderTree, file: str, column: ImageColumn) -> NDArray[np.uint8]:
    data = tree.read(file, LIMIT)
    image = decode_image(data, tree.where(file), "L" if column.gray else "RGB")
    return channels_first(resized(image, column.height, column.width))


def _reason(error: InvalidInputError, tree: FolderTree, file: str) -> str:
    """Return the message without the path, which the place says already."""
    return str(error).removeprefix(f"{tree.where(file)} ").removesuffix(".")
