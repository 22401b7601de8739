"""CSV line by line: the reference, which says of every bad line what is wrong with it.

The largest cell is declared: the limit of the `csv` module, which is the process's to change, would
hold for some lines and not for others.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import nan
from operator import itemgetter

import numpy as np

from poisonproof.datasets.rows import RawRows, RowProblem, too_long
from poisonproof.datasets.schema import Columns
from poisonproof.schema import Limits

__all__ = ["CsvLayout", "cell_number", "is_blank", "parse_lines", "split_line"]


@dataclass(frozen=True)
class CsvLayout:
    """Column names, the declared columns among them, what separates cells, the largest cell."""

    header: tuple[str, ...]
    columns: Columns
    delimiter: str
    largest_cell: int = Limits().cell

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns."""
        return tuple(self.header[index] for index in self.columns.features)


def parse_lines(block: bytes, first_line: int, layout: CsvLayout) -> RawRows:
    """Read whole lines, of which the first has the number `first_line`."""
    reader = _LineReader(layout)
    for number, line in enumerate(block.split(b"\n"), start=first_line):
        if is_blank(line, layout.delimiter):
            continue
        try:
            reader.take(number, line)
        except ValueError as error:
            whole = isinstance(error, _BrokenLineError)
            reader.problems.append(RowProblem(number, str(error), label=whole))
    return reader.rows()


class _BrokenLineError(ValueError):
    """A line that does not fall into cells; any of them may be to blame, the label too."""


def is_blank(line: bytes, delimiter: str) -> bool:
    r"""Say whether a line holds nothing, not even empty cells.

    >>> is_blank(b" \t\r\n", ","), is_blank(b"\t\t\n", "\t")
    (True, False)
    """
    return not line.strip() and delimiter.encode() not in line


def split_line(line: bytes, delimiter: str, width: int | None = None) -> list[str]:
    r"""Return the cells of one line; with `width`, a line of another number of cells is refused.

    >>> split_line(b'1,"a, b",\r\n', ",")
    ['1', 'a, b', '']
    """
    try:
        text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise _BrokenLineError(f"byte {error.start + 1} of the line is not UTF-8") from error
    if '"' not in text:
        _check_width(text.count(delimiter) + 1, width)
        return text.split(delimiter)
    line_of_cells, cell = _quoting(delimiter)
    if not line_of_cells.fullmatch(text):
        # A quote inside a cell that does not begin with one is the end of a cell that began lines
        # above: taken as it stands, half a text would become a row.
        raise _BrokenLineError("its quotes do not match within the line; a cell cannot span lines")
    found = cell.finditer(delimiter + text)
    # No more of them are held than a row has: a line of commas would be a million cells.
    cells = [match.groups() for match in islice(found, None if width is None else width + 1)]
    _check_width(len(cells) + sum(1 for _ in found), width)
    return [quoted[1:-1].replace('""', '"') if quoted else plain for quoted, plain in cells]


def _check_width(n_cells: int, width: int | None) -> None:
    if width not in (None, n_cells):
        raise _BrokenLineError(f"{n_cells} cells where the header has {width}")


@cache
def _quoting(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return lines in which every quote surrounds a whole cell or is doubled inside one, and cells.

    A cell is found together with the delimiter in front of it. Nothing is ever matched twice
    (``*+``), so time and memory grow with the length of the line.
    """
    mark = re.escape(delimiter)
    quoted, plain = '"[^"]*+(?:""[^"]*+)*+"', rf'[^"{mark}]*+'
    line = rf"(?:{quoted}|{plain})(?:{mark}(?:{quoted}|{plain}))*+"
    return re.compile(line), re.compile(rf"{mark}(?:({quoted})|({plain}))")


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
    """Collects the rows of one block."""

    def __init__(self, layout: CsvLayout) -> None:
        self.problems: list[RowProblem] = []
        self._layout = layout
        self._pick = _picker(layout.columns.features)
        read = (*layout.columns.texts, layout.columns.groups, layout.columns.weights)
        self._read = [*layout.columns.features, *(index for index in read if index is not None)]
        self._values = array("d")
        self._places = array("q")
        self._weights = array("d")
        self._labels: list[str | None] = []
        self._groups: list[str | None] = []
        self._texts: tuple[list[str | None], ...] = tuple([] for _ in layout.columns.texts)

    def take(self, number: int, line: bytes) -> None:
        """Take over one line, or raise ValueError and leave everything as it was."""
        columns = self._layout.columns
        cells = split_line(line, self._layout.delimiter, len(self._layout.header))
        may_be_long = len(line) > self._layout.largest_cell
        for index in self._read if may_be_long else ():
            self._check_size(cells, index)
        numbers = self._numbers(line, cells)
        if may_be_long and columns.label is not None:
            try:
                self._check_size(cells, columns.label)
            except ValueError as error:
                raise _BrokenLineError(str(error)) from None
        if columns.weights is not None:
            self._weights.append(self._number(cells, columns.weights))
        if columns.label is not None:
            self._labels.append(cells[columns.label] or None)
        if columns.groups is not None:
            self._groups.append(cells[columns.groups] or None)
        for column, index in zip(self._texts, columns.texts, strict=True):
            column.append(cells[index] or None)
        self._values.extend(numbers)
        self._places.append(number)

    def rows(self) -> RawRows:
        """Return everything taken."""
        columns = self._layout.columns
        shape = len(self._places), len(columns.features)
        return RawRows(
            X=np.array(self._values, dtype=np.float64).reshape(shape),
            labels=None if columns.label is None else self._labels,
            groups=None if columns.groups is None else self._groups,
            weights=None if columns.weights is None else np.array(self._weights, dtype=np.float64),
            names=self._layout.feature_names,
            places=np.array(self._places, dtype=np.int64),
            unit="line",
            problems=self.problems,
            texts=self._texts,
        )

    def _numbers(self, line: bytes, cells: list[str]) -> list[float]:
        if b"_" not in line and line.isascii():
            try:  # the whole row at once: the same numbers as `cell_number`, several times as fast
                return list(map(float, self._pick(cells)))
            except ValueError:
                pass  # an empty cell, or one to complain about
        return [self._number(cells, index) for index in self._layout.columns.features]

    def _check_size(self, cells: list[str], index: int) -> None:
        if len(cells[index].encode()) > self._layout.largest_cell:
            reason = too_long("it", self._layout.largest_cell)
            raise ValueError(f"column {self._layout.header[index]!r}: {reason}")

    def _number(self, cells: list[str], index: int) -> float:
        try:
            return cell_number(cells[index])
        except ValueError as error:
            raise ValueError(f"column {self._layout.header[index]!r}: {error}") from None


def _picker(positions: tuple[int, ...]) -> Callable[[list[str]], Sequence[str]]:
    if not positions:
        return lambda _: ()
    if positions == tuple(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    return itemgetter(*positions)


def _shown(cell: str) -> str:
    return repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}..."
