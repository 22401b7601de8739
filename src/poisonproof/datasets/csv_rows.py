"""Rows of a CSV file, line by line.

One line is one row. A quoted cell may hold the delimiter and doubled quotes but no line break, so
that an unclosed quote spoils its own line and cannot swallow the rows behind it.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import nan
from operator import itemgetter
from pathlib import Path

import numpy as np

from poisonproof.datasets.rows import RawRows, RowProblem
from poisonproof.datasets.schema import Columns, Schema
from poisonproof.exceptions import InvalidInputError

__all__ = ["cell_number", "read_csv_rows", "read_header", "split_line"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_csv_rows(path: Path, schema: Schema) -> RawRows:
    """Read a file with a header line, cells separated by commas (``.tsv``: by tabs).

    A feature cell is a number as ``float`` reads it; an empty cell or ``nan`` is a missing value.
    Labels and groups are taken as they stand, blanks included. Blank lines are skipped.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as file:
        header = read_header(path, file, delimiter)
        reader = _LineReader(header, schema.locate(header, path), delimiter)
        for number, line in enumerate(file, start=2):
            try:
                reader.take(number, line)
            except ValueError as error:
                reader.problems.append(RowProblem(number, str(error)))
    return reader.rows()


def read_header(path: Path, lines: Iterator[bytes], delimiter: str) -> list[str]:
    """Return the column names in the first line."""
    first = next(lines, b"").removeprefix(_BYTE_ORDER_MARK)
    if not first.strip():
        raise InvalidInputError(f"{path} is empty; a header line with column names is needed.")
    try:
        return split_line(first, delimiter)
    except ValueError as error:
        raise InvalidInputError(f"{path}, line 1: {error}.") from error


def split_line(line: bytes, delimiter: str) -> list[str]:
    r"""Return the cells of one line.

    >>> split_line(b'1,"a, b",\r\n', ",")
    ['1', 'a, b', '']
    """
    try:
        text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} of the line is not UTF-8") from error
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(
            f"its quotes do not match within the line ({error}); a cell cannot span lines"
        ) from error


def cell_number(cell: str) -> float:
    """Return a cell as a number, NaN if it is empty; anything else raises ValueError.

    >>> cell_number("-1.5e3"), cell_number(" ")
    (-1500.0, nan)
    """
    text = cell.strip()
    if not text:
        return nan
    if not text.isascii() or "_" in text:  # float would read '1_000' and other alphabets' digits
        raise ValueError(f"{_shown(cell)} is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number") from None


class _LineReader:
    """Collects the rows of one file."""

    def __init__(self, header: Sequence[str], columns: Columns, delimiter: str) -> None:
        self.problems: list[RowProblem] = []
        self._header = header
        self._columns = columns
        self._delimiter = delimiter
        self._features = _picker(columns.features)
        self._values = array("d")
        self._places = array("q")
        self._weights = array("d")
        self._labels: list[str | None] = []
        self._groups: list[str | None] = []

    def take(self, number: int, line: bytes) -> None:
        """Take over one line, or raise ValueError and leave everything as it was."""
        cells = split_line(line, self._delimiter)
        if len(cells) != len(self._header):
            if not line.strip():
                return
            raise ValueError(f"{len(cells)} cells where the header has {len(self._header)}")
        numbers = self._numbers(line, cells)
        columns = self._columns
        if columns.weights is not None:
            self._weights.append(self._number(cells, columns.weights))
        if columns.label is not None:
            self._labels.append(cells[columns.label] or None)
        if columns.groups is not None:
            self._groups.append(cells[columns.groups] or None)
        self._values.extend(numbers)
        self._places.append(number)

    def rows(self) -> RawRows:
        """Return everything taken."""
        columns = self._columns
        n, d = len(self._places), len(columns.features)
        return RawRows(
            X=np.frombuffer(self._values, dtype=np.float64, count=n * d).reshape(n, d)
            if n
            else np.empty((0, d)),
            labels=None if columns.label is None else self._labels,
            groups=None if columns.groups is None else self._groups,
            weights=None if columns.weights is None else np.array(self._weights, dtype=np.float64),
            names=tuple(self._header[index] for index in columns.features),
            places=self._places,
            unit="line",
            problems=self.problems,
        )

    def _numbers(self, line: bytes, cells: list[str]) -> list[float]:
        if b"_" not in line and line.isascii():
            try:  # the whole row at once: the same numbers as `cell_number`, ten times as fast
                return list(map(float, self._features(cells)))
            except ValueError:
                pass  # an empty cell, or one to complain about
        return [self._number(cells, index) for index in self._columns.features]

    def _number(self, cells: list[str], index: int) -> float:
        try:
            return cell_number(cells[index])
        except ValueError as error:
            raise ValueError(f"column {self._header[index]!r}: {error}") from None


def _picker(positions: tuple[int, ...]) -> Callable[[list[str]], Sequence[str]]:
    if len(positions) == 1:
        only = positions[0]
        return lambda cells: cells[only : only + 1]
    if positions == tuple(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    return itemgetter(*positions)


def _shown(cell: str) -> str:
    return repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}..."
