"""Rows of a CSV file.

One line is one row. A quoted cell may hold the delimiter and doubled quotes but no line break, so
that an unclosed quote spoils its own line and cannot swallow the rows behind it. A line beyond the
declared limit is passed over without being held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from poisonproof.datasets.csv_blocks import parse_block
from poisonproof.datasets.csv_lines import CsvLayout, parse_lines, split_line
from poisonproof.datasets.rows import RawRows, RowProblem, join_rows, too_long
from poisonproof.datasets.schema import Schema
from poisonproof.exceptions import InvalidInputError

__all__ = ["BYTE_ORDER_MARK", "csv_parts", "lines_of", "read_csv_rows", "read_header"]

_BLOCK_BYTES = 1 << 24
_SKIPPED_BYTES = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_csv_rows(path: Path, schema: Schema) -> RawRows:
    """Read a file with a header line, cells separated by commas (``.tsv``: by tabs).

    A feature cell is a number as ``float`` reads it; an empty cell or ``nan`` is a missing value.
    Labels and groups are taken as they stand, blanks included. Blank lines are skipped; a line of
    tabs in a ``.tsv`` file is a row of empty cells.
    """
    return join_rows([part for part, _ in csv_parts(path, schema)])


def csv_parts(
    path: Path, schema: Schema, block_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[RawRows, int]]:
    """Read the same rows by the megabyte, with the bytes read; at least one part, maybe empty."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as file:
        limits = schema.limits
        header = read_header(path, file, delimiter, limits.line)
        layout = CsvLayout(tuple(header), schema.locate(header, path), delimiter, limits.cell)
        before, first_line = 0, 2
        for block, cut in _blocks(file, limits.line, block_bytes):
            rows = parse_block(block, first_line, layout)
            rows = parse_lines(block, first_line, layout) if rows is None else rows
            first_line += block.count(b"\n")
            if cut:
                reason = too_long("it", limits.line)
                rows.problems.append(RowProblem(first_line, reason, label=True))
                first_line += 1
            yield rows, file.tell() - before
            before = file.tell()
        if not before:
            yield parse_lines(b"", 2, layout), file.tell()


def read_header(path: Path, file: IO[bytes], delimiter: str, longest: int) -> list[str]:
    """Return the column names in the first line of an open file."""
    first = file.readline(longest + 2)
    if _is_longer(first, longest):
        raise InvalidInputError(
            f"{path}: line 1 holds more than {longest:,} bytes, the largest line that is read. It "
            "must be a header with the names of the columns; wide numeric data belongs in a npz "
            "file."
        )
    first = first.removeprefix(BYTE_ORDER_MARK)
    if not first.strip():
        raise InvalidInputError(f"{path} is empty; a header line with column names is needed.")
    try:
        return split_line(first, delimiter)
    except ValueError as error:
        raise InvalidInputError(f"{path}, line 1: {error}.") from error


def lines_of(file: IO[bytes], longest: int) -> Iterator[bytes | None]:
    """Yield the lines of an open file, None for each that is longer than `longest` bytes."""
    while line := file.readline(longest + 2):
        if _is_longer(line, longest):
            _skip_line(file, line)
            yield None
        else:
            yield line


def _blocks(file: IO[bytes], longest: int, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines by the megabyte, and whether a line behind them was passed over.

    A block is at most as long as a line may be, but for the end of its last line: no other line of
    it can be too long.
    """
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
