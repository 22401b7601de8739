"""Rows of CSV files, line by line: each line is read by itself, and says what is wrong with it.

One line is one row. A quoted cell may hold the delimiter and doubled quotes but no line break, so
that an unclosed quote spoils its own line and cannot swallow the rows behind it. Lines are split
here and not by the `csv` module, whose largest cell is a setting of the whole process.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from math import nan
from operator import itemgetter
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from poisonproof.data.rows import RawRows, RowProblem, too_long
from poisonproof.data.schema import Layout, Schema
from poisonproof.exceptions import InvalidInputError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 24
_SKIPPED_BYTES = 1 << 16


class CsvLayout(NamedTuple):
    """The columns of a CSV file, what separates cells, and the largest cell."""

    columns: Layout
    delimiter: str
    largest_cell: int


def csv_parts(
    path: Path, schema: Schema, block_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[RawRows, int]]:
    """Read a file with a header line by the megabyte, with the bytes read; at least one part."""
    with path.open("rb") as file:
        limits, delimiter = schema.limits, delimiter_of(path)
        columns = schema.locate(read_header(path, file, limits.line), path)
        layout = CsvLayout(columns, delimiter, limits.cell)
        before, first_line = 0, 2
        for block, cut in _blocks(file, limits.line, block_bytes):
            rows = parse_lines(block, first_line, layout)
            first_line += block.count(b"\n")
            if cut:
                reason = too_long("it", limits.line)
                rows.problems.append(RowProblem(first_line, reason, label=True))
                first_line += 1
            yield rows, file.tell() - before
            before = file.tell()
        if not before:
            yield parse_lines(b"", 2, layout), file.tell()


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a file."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def read_header(path: Path, file: IO[bytes], longest: int) -> list[str]:
    """Return the column names in the first line of an open file."""
    first = file.readline(longest + 2)
    if _is_longer(first, longest):
        raise InvalidInputError(
            f"{path}: line 1 holds more than {longest:,} bytes, the largest line that is read. It "
            "must be a header with the names of the columns; wide numeric data belongs in an npz "
            "file."
        )
    first = first.removeprefix(BYTE_ORDER_MARK)
    if not first.strip():
        raise InvalidInputError(f"{path} is empty; a header line with column names is needed.")
    try:
        return split_line(first, delimiter_of(path))
    except ValueError as error:
        raise InvalidInputError(f"{path}, line 1: {error}.") from error


def first_lines(path: Path, most: int, longest: int) -> bytes:
    """Return the first lines below the header; a line that is too long becomes no UTF-8."""
    lines: list[bytes] = []
    with path.open("rb") as file:
        file.readline(longest + 2)
        while len(lines) < most and (line := file.readline(longest + 2)):
            if _is_longer(line, longest):
                _skip_line(file, line)
                line = b"\xff\n"
            lines.append(line)
    return b"".join(lines)


def _blocks(file: IO[bytes], longest: int, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines by the megabyte, and whether a line behind them was passed over."""
    while block := file.read(min(size, longest)):
        start = block.rfind(b"\n") + 1
        block += b"" if start == len(block) else file.readline(longest + 2 - len(block) + start)
        cut = len(block) - start > longest and _is_longer(block[start:], longest)
        if cut:
            _skip_line(file, block)
        yield block[:start] if cut else block, cut


def _is_longer(line: bytes, longest: int) -> bool:
    return len(line) - line.endswith(b"\n") > longest


def _skip_line(file: IO[bytes], part: bytes) -> None:
    """Read on to the end of a line of which `part` has been read, holding nothing."""
    while part and not part.endswith(b"\n"):
        part = file.readline(_SKIPPED_BYTES)


def parse_lines(block: bytes, first_line: int, layout: CsvLayout) -> RawRows:
    """Read whole lines, of which the first has the number `first_line`."""
    columns = layout.columns
    found = (columns.label, columns.groups, *columns.texts)
    texts: list[list[str | None]] = [[] for _ in found]
    values, places, weights = array("d"), array("q"), array("d")
    problems: list[RowProblem] = []
    pick = _picker(columns.features)
    for number, line in enumerate(block.split(b"\n"), start=first_line):
        if is_blank(line, layout.delimiter):
            continue
        try:
            cells = split_line(line, layout.delimiter, len(columns.header))
            if len(line) > layout.largest_cell:
                read = [*columns.features, *columns.texts, columns.groups, columns.weights]
                _check_sizes(cells, layout, read)
            numbers = _line_numbers(line, cells, columns, pick)
            if len(line) > layout.largest_cell:
                try:
                    _check_sizes(cells, layout, [columns.label])
                except ValueError as error:
                    raise _BrokenLineError(str(error)) from None
            if columns.weights is not None:
                weights.append(_cell_number(cells, columns, columns.weights))
        except ValueError as error:
            whole = isinstance(error, _BrokenLineError)
            problems.append(RowProblem(number, str(error), label=whole))
            continue
        values.extend(numbers)
        places.append(number)
        for column, index in zip(texts, found, strict=True):
            if index is not None:
                column.append(cells[index] or None)
    shape = len(places), len(columns.features)
    return RawRows(
        X=np.array(values, dtype=np.float64).reshape(shape),
        labels=None if columns.label is None else texts[0],
        groups=None if columns.groups is None else texts[1],
        weights=None if columns.weights is None else np.array(weights, dtype=np.float64),
        names=columns.feature_names,
        places=np.array(places, dtype=np.int64),
        unit="line",
        problems=problems,
        texts=tuple(texts[2:]),
    )


def _check_sizes(cells: list[str], layout: CsvLayout, indices: Sequence[int | None]) -> None:
    for index in indices:
        if index is not None and len(cells[index].encode()) > layout.largest_cell:
            reason = too_long("it", layout.largest_cell)
            raise ValueError(f"column {layout.columns.header[index]!r}: {reason}")


def _line_numbers(
    line: bytes, cells: list[str], columns: Layout, pick: Callable[[list[str]], Sequence[str]]
) -> list[float]:
    if b"_" not in line and line.isascii():
        try:  # the whole row at once: the same numbers as `cell_number`, several times as fast
            return list(map(float, pick(cells)))
        except ValueError:
            pass  # an empty cell, or one to complain about
    return [_cell_number(cells, columns, index) for index in columns.features]


def _cell_number(cells: list[str], columns: Layout, index: int) -> float:
    try:
        return cell_number(cells[index])
    except ValueError as error:
        raise ValueError(f"column {columns.header[index]!r}: {error}") from None


def _picker(positions: tuple[int, ...]) -> Callable[[list[str]], Sequence[str]]:
    if not positions:
        return lambda _: ()
    if positions == tuple(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    return itemgetter(*positions)


class _BrokenLineError(ValueError):
    """A line that does not fall into cells; any of them may be to blame, the label too."""


def is_blank(line: bytes, delimiter: str) -> bool:
    """Say whether a line holds nothing, not even empty cells."""
    return not line.strip() and delimiter.encode() not in line


def split_line(line: bytes, delimiter: str, width: int | None = None) -> list[str]:
    """Return the cells of one line; with `width`, a line of another number of cells is refused."""
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
    """Return a cell as a number, NaN if it is empty; anything else raises ValueError."""
    text = cell.strip()
    if not text:
        return nan
    if not text.isascii() or "_" in text:  # float would read '1_000' and other alphabets' digits
        raise ValueError(f"{_shown(cell)} is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{_shown(cell)} is not a number") from None


def _shown(cell: str) -> str:
    return repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}..."
