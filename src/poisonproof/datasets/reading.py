"""From a file to checked rows, by the suffix of its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TypeVar

from poisonproof.datasets.csv_rows import read_csv_rows
from poisonproof.datasets.npz_rows import read_npy_rows, read_npz_rows
from poisonproof.datasets.parquet_rows import read_parquet_rows
from poisonproof.datasets.rows import CheckedRows, RawRows, check_rows
from poisonproof.datasets.schema import Schema
from poisonproof.exceptions import InvalidInputError

__all__ = ["check_file", "read_raw", "read_rows"]

Reader = TypeVar("Reader")

_READERS: dict[str, Callable[[Path, Schema], RawRows]] = {
    ".csv": read_csv_rows,
    ".tsv": read_csv_rows,
    ".parquet": read_parquet_rows,
    ".npz": read_npz_rows,
    ".npy": read_npy_rows,
}


def read_rows(path: str | os.PathLike[str], schema: Schema) -> CheckedRows:
    """Read a data file.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .tsv, .parquet, .npz or .npy.
    schema : Schema
        What its columns mean.

    Returns
    -------
    CheckedRows
        The rows that fit, and why the others were rejected.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or a declared column is not there.

    Guarantee
    ---------
    What a row becomes depends on its own cells, the column names and the schema. No other row has
    a say in its type, its values or whether it is kept.
    """
    path = Path(path)
    raw = read_raw(path, schema)
    return check_rows(
        replace(raw, X=raw.X.reshape(len(raw.X), prod(raw.X.shape[1:]))), schema, path
    )


def read_raw(path: Path, schema: Schema) -> RawRows:
    """Read a data file without judging any value; samples of arrays keep their shape."""
    reader = check_file(path, _READERS)
    try:
        return reader(path, schema)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.") from error


def check_file(path: Path, readers: dict[str, Reader]) -> Reader:
    """Return the reader for the suffix of an existing, non-empty file."""
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise InvalidInputError(
            f"{path} must end in one of {', '.join(readers)}, which tells its format."
        )
    if not path.exists():
        raise InvalidInputError(f"There is no file {path}.")
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a file.")
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty.")
    return readers[suffix]
