"""Read vote matrices from npz, npy and CSV files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.csv_files import BYTE_ORDER_MARK, delimiter_of, is_blank, split_line
from poisonproof.data.npz_files import load_array, load_arrays
from poisonproof.data.sources import ARRAYS, check_file
from poisonproof.exceptions import InvalidInputError, InvalidVotesError


def read_votes(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read a vote matrix.

    Parameters
    ----------
    path : path
        A .npz or .npy file with an integer array of shape (n, k), named ``votes`` in npz, or a .csv
        or .tsv table of numbers alone: one row per test sample and one column per member.

    Returns
    -------
    ndarray of int, shape (n, k)
        Class indices, -1 where a member abstains. Their range is for the certificate to check.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_file(path, (*ARRAYS, ".csv", ".tsv"))
    try:
        if suffix in ARRAYS:
            votes = load_arrays(path, ["votes"])["votes"] if suffix == ".npz" else load_array(path)
        else:
            votes = _read_text(path)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    if votes.dtype.kind not in "iu":
        raise InvalidVotesError(
            f"{path} holds votes of dtype {votes.dtype}; they must be integers: class indices, and "
            "-1 for an abstention. Certify probabilities in Python, by certify_scores."
        )
    if votes.ndim != 2 or 0 in votes.shape:
        raise InvalidVotesError(
            f"{path} holds votes of shape {votes.shape}; one row per test sample and one column "
            "per member are needed, and at least one of each."
        )
    return votes


def _read_text(path: Path) -> NDArray[np.int64]:
    delimiter = delimiter_of(path)
    rows: list[list[int]] = []
    width, blank = None, None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if is_blank(line, delimiter):
                blank = blank or number
                continue
            if blank is not None:
                # The k-th line is the k-th test sample: a lost line would move all those below.
                raise InvalidVotesError(f"{path}, line {blank}: it is blank, but votes follow.")
            try:
                cells = split_line(line.removeprefix(BYTE_ORDER_MARK * (number == 1)), delimiter)
                if len(cells) != (width := width or len(cells)):
                    raise ValueError(f"{len(cells)} votes where line 1 has {width} cells")
                rows.append(list(map(_integer, cells)))
            except ValueError as error:
                raise InvalidVotesError(f"{path}, line {number}: {error}.") from error
    if not rows:
        raise InvalidVotesError(f"{path} holds no votes.")
    return np.array(rows, dtype=np.int64)


def _integer(cell: str) -> int:
    text = cell.strip()
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 18:
        raise ValueError(f"{cell[:40]!r} is not a vote; votes are integers, -1 for an abstention")
    return int(text)
