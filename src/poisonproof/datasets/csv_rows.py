"""Rows of a CSV file.

One line is one row. A quoted cell may hold the delimiter and doubled quotes but no line break, so
that an unclosed quote spoils its own line and cannot swallow the rows behind it. A cell may be of
any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from poisonproof.datasets.csv_blocks import parse_block
from poisonproof.datasets.csv_lines import CsvLayout, parse_lines, split_line
from poisonproof.datasets.rows import RawRows
from poisonproof.datasets.schema import Schema
from poisonproof.exceptions import InvalidInputError

__all__ = ["BLOCK_BYTES", "BYTE_ORDER_MARK", "csv_parts", "read_csv_rows", "read_header"]

BLOCK_BYTES = 1 << 24
_LONGEST_HEADER = 1 << 25
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_csv_rows(path: Path, schema: Schema) -> RawRows:
    """Read a file with a header line, cells separated by commas (``.tsv``: by tabs).

    A feature cell is a number as ``float`` reads it; an empty cell or ``nan`` is a missing value.
    Labels and groups are taken as they stand, blanks included. Blank lines are skipped; a line of
    tabs in a ``.tsv`` file is a row of empty cells.
    """
    return _joined(list(csv_parts(path, schema)))


def csv_parts(path: Path, schema: Schema) -> Iterator[RawRows]:
    """Read the same rows by the megabyte; at least one part, which may be empty."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open("rb") as file:
        header = read_header(path, file, delimiter)
        layout = CsvLayout(tuple(header), schema.locate(header, path), delimiter)
        first_line = None
        for first_line, block in _blocks(file):
            rows = parse_block(block, first_line, layout)
            yield parse_lines(block, first_line, layout) if rows is None else rows
        if first_line is None:
            yield parse_lines(b"", 2, layout)


def read_header(path: Path, file: IO[bytes], delimiter: str) -> list[str]:
    """Return the column names in the first line of an open file."""
    first = file.readline(_LONGEST_HEADER + 1)
    if len(first) > _LONGEST_HEADER:
        raise InvalidInputError(
            f"{path}: line 1 holds more than {_LONGEST_HEADER:,} bytes. It must be a header with "
            "the names of the columns; wide numeric data belongs in a npz file."
        )
    first = first.removeprefix(BYTE_ORDER_MARK)
    if not first.strip():
        raise InvalidInputError(f"{path} is empty; a header line with column names is needed.")
    try:
        return split_line(first, delimiter)
    except ValueError as error:
        raise InvalidInputError(f"{path}, line 1: {error}.") from error


def _blocks(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines by the megabyte, with the number of the first one."""
    number = 2
    while block := file.read(BLOCK_BYTES) + file.readline():
        yield number, block
        number += block.count(b"\n")


def _joined(parts: list[RawRows]) -> RawRows:
    first = parts[0]
    if len(parts) == 1:
        return first
    return RawRows(
        X=np.concatenate([part.X for part in parts]),
        labels=None if first.labels is None else _chained(part.labels for part in parts),
        groups=None if first.groups is None else _chained(part.groups for part in parts),
        weights=None
        if first.weights is None
        else np.concatenate([part.weights for part in parts if part.weights is not None]),
        names=first.names,
        places=np.concatenate([part.places for part in parts]),
        unit=first.unit,
        problems=_chained(part.problems for part in parts),
        texts=tuple(
            _chained(part.texts[column] for part in parts) for column in range(len(first.texts))
        ),
    )


def _chained(parts: Iterable[Iterable[Any] | None]) -> list[Any]:
    return list(chain.from_iterable(part for part in parts if part is not None))
