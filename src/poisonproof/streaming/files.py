"""Which files a training set consists of."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from poisonproof.datasets import RowProblem
from poisonproof.datasets.image_rows import printable
from poisonproof.datasets.images.trees import walk
from poisonproof.exceptions import InvalidInputError

__all__ = ["SUFFIXES", "Found", "find_files", "split_files"]

SUFFIXES = (".parquet", ".csv", ".tsv")

Found = tuple[tuple[Path, ...], tuple[RowProblem, ...]]
"""Files that are read, and entries of the folder that are not."""


def find_files(path: str | os.PathLike[str], suffixes: tuple[str, ...] = SUFFIXES) -> Found:
    """Return the file `path`, or all data files of one format in the folder `path`.

    Files and folders whose names begin with a dot or an underscore are not data, as in Spark and
    pyarrow. Every other entry that is not read comes with its reason: links are not followed, and
    pipes are not opened. The order of the files has no influence on any partition.

    Raises
    ------
    InvalidInputError
        If there is no such file, or the folder holds none, or files of several formats.
    """
    path = Path(path)
    left_out: list[RowProblem] = []
    if path.is_dir():
        found = []
        other = f"does not end in {' or '.join(suffixes)}"
        for name, reason in sorted(walk(path)):
            if any(part.startswith((".", "_")) for part in name.split("/")):
                continue
            if reason or not name.lower().endswith(suffixes):
                left_out.append(RowProblem(printable(name), reason or other))
            else:
                found.append(path / name)
    elif path.is_file():
        found = [path] if path.suffix.lower() in suffixes else []
    else:
        raise InvalidInputError(f"There is no file or folder {path}.")
    if not found:
        raise InvalidInputError(
            f"{path} holds no file that can be streamed; its name must end in "
            f"{', '.join(suffixes)}."
        )
    formats = sorted({file.suffix.lower() for file in found})
    if len(formats) > 1:
        raise InvalidInputError(
            f"{path} holds files of several formats: {', '.join(formats)}. Give a folder of one."
        )
    return tuple(found), tuple(left_out)


def split_files(found: Found, n_parts: int) -> list[Found]:
    """Return at most `n_parts` parts of the files; what is not read goes with the first."""
    files, left_out = found
    parts = np.array_split(np.arange(len(files)), min(n_parts, len(files)))
    return [
        (tuple(files[index] for index in part), left_out if number == 0 else ())
        for number, part in enumerate(parts)
    ]
