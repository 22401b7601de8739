"""Vote matrices from files: the narrow waist between training and certificates."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.csv_lines import split_line
from poisonproof.datasets.npz_rows import load_array, load_arrays
from poisonproof.datasets.parquet_rows import open_parquet
from poisonproof.datasets.reading import check_file
from poisonproof.exceptions import InvalidInputError, InvalidVotesError

__all__ = ["read_votes"]


def read_votes(
    path: str | os.PathLike[str], *, key: str = "votes", abstain: int = -1
) -> NDArray[Any]:
    """Read a vote matrix.

    Parameters
    ----------
    path : path
        A .npz or .npy file with an integer array of shape (n, k), or a .csv, .tsv or .parquet
        table with one row per test sample and one column per member. The first line of a text
        file may be a header.
    key : str
        Name of the array in a npz file.
    abstain : int
        The number that stands for an abstention in the file, for example 255 in uint8.

    Returns
    -------
    ndarray of int, shape (n, k)
        Class indices, -1 where a member abstains. Their range is for the certificate to check.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path, str], NDArray[Any]]] = {
        ".npz": lambda file, name: load_arrays(file, [name])[name],
        ".npy": lambda file, _: load_array(file),
        ".csv": _read_text,
        ".tsv": _read_text,
        ".parquet": _read_parquet,
    }
    reader = check_file(path, readers)
    try:
        votes = reader(path, key)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if votes.dtype.kind not in "iu":
        raise InvalidVotesError(
            f"{path} holds votes of dtype {votes.dtype}; they must be integers: class indices, and "
            "-1 for an abstention."
        )
    if votes.ndim != 2 or 0 in votes.shape:
        raise InvalidVotesError(
            f"{path} holds votes of shape {votes.shape}; one row per test sample and one column "
            "per member are needed, and at least one of each."
        )
    return votes if abstain == -1 else _with_abstentions(votes, abstain)


def _with_abstentions(votes: NDArray[Any], abstain: int) -> NDArray[Any]:
    widest = np.promote_types(votes.dtype, np.int8)
    if widest.kind != "i":  # uint64 has no signed type above it
        raise InvalidVotesError(f"Votes of dtype {votes.dtype} cannot hold abstentions.")
    signed = votes.astype(widest)
    signed[votes == abstain] = -1
    return signed


def _read_text(path: Path, _: str) -> NDArray[np.int64]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows: list[list[int]] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                cells = split_line(line.removeprefix(b"\xef\xbb\xbf"), delimiter)
                if number == 1 and not any(map(_is_integer, cells)):
                    continue  # a header: no vote reads like a name
                rows.append([_integer(cell) for cell in cells])
            except ValueError as error:
                raise InvalidVotesError(f"{path}, line {number}: {error}.") from error
            if len(rows[-1]) != len(rows[0]):
                raise InvalidVotesError(
                    f"{path}, line {number}: {len(rows[-1])} votes where the lines above have "
                    f"{len(rows[0])}."
                )
    if not rows:
        raise InvalidVotesError(f"{path} holds no votes.")
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(rows) * len(rows[0]))
    return flat.reshape(len(rows), len(rows[0]))


def _read_parquet(path: Path, _: str) -> NDArray[Any]:
    import pyarrow as pa

    table = open_parquet(path)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_integer(column.type) or column.null_count:
            raise InvalidVotesError(
                f"Column {name!r} of {path} holds {column.type} with {column.null_count} nulls; "
                "votes are integers, -1 for an abstention."
            )
    if not table.num_columns:
        raise InvalidVotesError(f"{path} holds no votes.")
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _is_integer(cell: str) -> bool:
    try:
        _integer(cell)
    except ValueError:
        return False
    return True


def _integer(cell: str) -> int:
    text = cell.strip()
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 18:
        raise ValueError(f"{cell[:40]!r} is not a vote; votes are integers, -1 for an abstention")
    return int(text)
