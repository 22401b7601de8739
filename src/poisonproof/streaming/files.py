"""Which files a training set consists of."""

from __future__ import annotations

import os
from pathlib import Path

from poisonproof.exceptions import InvalidInputError

__all__ = ["SUFFIXES", "find_files"]

SUFFIXES = (".parquet", ".csv", ".tsv")


def find_files(
    path: str | os.PathLike[str], suffixes: tuple[str, ...] = SUFFIXES
) -> tuple[Path, ...]:
    """Return the file `path`, or all data files of one format in the folder `path`.

    Files and folders whose names begin with a dot or an underscore are not data, as in Spark and
    pyarrow. The order of the files has no influence on any partition.

    Raises
    ------
    InvalidInputError
        If there is no such file, or the folder holds none, or files of several formats.
    """
    path = Path(path)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if _is_data(file, path, suffixes))
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
    return tuple(found)


def _is_data(file: Path, folder: Path, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    return file.suffix.lower() in suffixes and not hidden and file.is_file()
