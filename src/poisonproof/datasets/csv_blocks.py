"""CSV by the megabyte with pyarrow, where that gives exactly what reading by line gives.

A block with anything unusual in it (quotes within a cell, other alphabets, a cell that is no plain
number, a line of another length) is left to `parse_lines`; so is everything if pyarrow is not
installed.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from poisonproof.datasets.csv_lines import CsvLayout
from poisonproof.datasets.rows import RawRows

__all__ = ["parse_block"]

_SMALLEST = 1 << 20
"""Below a megabyte, importing pyarrow takes longer than it saves."""

_UNUSUAL = (b"_", b"(", b"\n\n", b"\n\r\n")
"""float and pyarrow differ on '1_000' and on 'nan(x)'; a blank line is no row of missing values."""


def parse_block(
    block: bytes, first_line: int, layout: CsvLayout, smallest: int = _SMALLEST
) -> RawRows | None:
    """Read whole lines at once; None if that could differ from `parse_lines`."""
    if len(block) < smallest or len(layout.header) < 2 or not _is_usual(block, layout.delimiter):
        return None
    half = max(1, layout.largest_cell // 2)
    inside = range(0, len(block) - half + 1, half)
    if any(block.find(b"\n", start, start + half) < 0 for start in inside):
        return None  # else every line is shorter than a cell may be
    table = _read(block, layout)
    n_lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table is None or table.num_rows != n_lines:
        return None
    columns = layout.columns
    X = np.empty((n_lines, len(columns.features)))
    for target, index in enumerate(columns.features):
        X[:, target] = _numbers(table, index)
    return RawRows(
        X=X,
        labels=None if columns.label is None else _texts(table, columns.label),
        groups=None if columns.groups is None else _texts(table, columns.groups),
        weights=None if columns.weights is None else _numbers(table, columns.weights),
        names=layout.feature_names,
        places=np.arange(first_line, first_line + n_lines),
        unit="line",
        texts=tuple(_texts(table, index) for index in columns.texts),
    )


def _is_usual(block: bytes, delimiter: str) -> bool:
    return (
        block.isascii()
        and not any(mark in block for mark in _UNUSUAL)
        and not block.startswith((b"\n", b"\r\n"))
        and block.count(b"\r") == block.count(b"\r\n")  # pyarrow ends a line at either
        and _has_plain_quotes(block, delimiter)
    )


def _has_plain_quotes(block: bytes, delimiter: str) -> bool:
    """Say whether all quotes surround whole cells that would read the same without them."""
    if b'"' not in block:
        return True
    mark = re.escape(delimiter.encode())
    # Beginning with the quote lets the search jump from quote to quote.
    cell = rb'"(?<=[%b\n]")[^"%b\r\n]*"(?=[%b\r\n]|\Z)' % (mark, mark, mark)
    return 2 * len(re.findall(cell, b"\n" + block)) == block.count(b'"')


def _read(block: bytes, layout: CsvLayout) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    columns = layout.columns
    numbers = {*columns.features, columns.weights} - {None}
    texts = {columns.label, columns.groups, *columns.texts} - {None}
    kinds = {str(index): pa.float64() for index in numbers}
    kinds |= {str(index): pa.string() for index in texts}
    try:
        return csv.read_csv(
            io.BytesIO(block),
            csv.ReadOptions(column_names=[str(index) for index in range(len(layout.header))]),
            csv.ParseOptions(
                delimiter=layout.delimiter,
                double_quote=False,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds),
                null_values=[""],
                quoted_strings_can_be_null=True,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None  # some line does not fit; reading by line will say which


def _numbers(table: Any, index: int) -> Any:
    return table.column(str(index)).combine_chunks().to_numpy(zero_copy_only=False)


def _texts(table: Any, index: int) -> list[str | None]:
    return [text or None for text in table.column(str(index)).to_pylist()]
