"""How large the pages of a Parquet file are, read from their headers before any is decompressed.

pyarrow decompresses a page as a whole and shows its cells afterwards, and a page of two gigabytes
may take a few kilobytes in the file. The headers in front of the pages say how large they become.
pyarrow does not show them, hence this reader of the few fields that are needed (Thrift, compact
protocol).
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["LARGEST_PAGE", "rows_per_batch", "stays_encoded"]

LARGEST_PAGE = 2**26
"""A file with a page that becomes larger is refused. Writers aim at one megabyte, but some look at
the size after a thousand cells only."""

_USUAL_PAGE = 2**22
"""Larger pages are counted by themselves: one of them must not make all batches small."""

_DEEPEST = 8
_DICTIONARY = (2, 8)
"""Encodings of pages that hold numbers of cells in another page."""
_DELTA_BYTE_ARRAY = 7
"""The encoding in which a cell may begin as the one before does, without being stored again."""

_Numbers = NDArray[Any]


def rows_per_batch(
    path: Path, metadata: Any, group: int, names: Sequence[str], most: int, batch_bytes: int
) -> int:
    """Return how many rows of a row group can be read together.

    Parameters
    ----------
    path : Path
        The file.
    metadata : pyarrow.parquet.FileMetaData
        Its footer.
    group : int
        Number of the row group.
    names : sequence of str
        Columns that are read; nested ones among them are not counted.
    most : int
        The largest answer.
    batch_bytes : int
        About how large the cells of a batch may be, beyond one page of unusual size.

    Raises
    ------
    InvalidInputError
        If a page is larger than `LARGEST_PAGE`, or the file is damaged.
    """
    wanted, columns = set(names), metadata.row_group(group)
    chunks = map(columns.column, range(columns.num_columns))
    found = [_pages(path, chunk) for chunk in chunks if chunk.path_in_schema in wanted]
    step = max(1, most)
    for usual, allowed in ((True, batch_bytes), (False, LARGEST_PAGE)):
        counted = [
            (rows, np.where((sizes <= _USUAL_PAGE) == usual, sizes, 0)) for rows, sizes in found
        ]
        while step > 1 and _heaviest(counted, step) > allowed:
            step //= 2
    return step


def stays_encoded(chunk: Any) -> bool:
    """Say whether pyarrow can hand out a column of texts as different values and their numbers."""
    return not any(name.startswith("DELTA") for name in chunk.encodings)


def _heaviest(columns: Sequence[tuple[_Numbers, _Numbers]], step: int) -> float:
    """Return the most bytes that `step` consecutive rows take, all columns together."""
    ends = [np.concatenate([[0], np.cumsum(rows)]) for rows, _ in columns]
    sums = [np.concatenate([[0], np.cumsum(sizes)]) for _, sizes in columns]
    # The sum over a window changes its slope where a page ends; so one of these is the largest.
    edges = np.unique(np.concatenate([[0], *ends]))
    starts = np.concatenate([edges, np.maximum(edges - step, 0)])
    pairs = list(zip(ends, sums, strict=True))
    total = sum(
        np.interp(starts + step, end, size) - np.interp(starts, end, size) for end, size in pairs
    )
    return float(np.max(total)) if pairs else 0.0


def _pages(path: Path, chunk: Any) -> tuple[_Numbers, _Numbers]:
    """Return rows and bytes of the data pages of a column chunk, each of shape (n,)."""
    start, seen, dictionary = int(chunk.data_page_offset), 0, 0
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = int(chunk.dictionary_page_offset)
    rows, sizes = [], []
    encoded = chunk.physical_type != "BYTE_ARRAY" or stays_encoded(chunk)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            while seen < chunk.num_values:
                header, start = _read_struct(view, start, _DEEPEST)
                size, stored = header[2], header[3]
                if size > LARGEST_PAGE:
                    raise InvalidInputError(
                        f"Column {chunk.path_in_schema!r} of {path} has a page of {size:,} bytes; "
                        f"pages of at most {LARGEST_PAGE:,} bytes are read. Write the file with "
                        "smaller pages and without cells of that size."
                    )
                data = header.get(5) or header.get(8)  # version 1 or 2; a dictionary has neither
                n_rows = data[1] if data else 0
                if min(size, stored, n_rows) < 0 or start + stored > len(view):
                    raise ValueError
                start, seen = start + stored, seen + n_rows
                if not data:
                    dictionary = size
                    continue
                rows.append(n_rows)
                encoding = data[2] if 5 in header else data[4]
                if encoding == _DELTA_BYTE_ARRAY:
                    size *= n_rows
                elif encoding in _DICTIONARY and not encoded:
                    size += dictionary * n_rows
                sizes.append(size)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"{path} is not a readable Parquet file: its pages are damaged."
        ) from error
    return np.array(rows, dtype=np.int64), np.array(sizes, dtype=np.float64)


def _read_struct(view: mmap.mmap, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the numbers and structures of a Thrift structure by field, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    if depth == 0:
        raise ValueError
    while kind := view[at]:
        at += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, at = _read_integer(view, at)
        fields[number], at = _read_value(view, at, kind & 15, depth)
    return fields, at + 1


def _read_value(view: mmap.mmap, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return kind == 1, at
    if kind == 3:  # a byte
        return view[at], at + 1
    if kind in (4, 5, 6):  # integers
        return _read_integer(view, at)
    if kind == 7:  # a double
        return None, at + 8
    if kind == 8:  # bytes
        length, at = _read_varint(view, at)
        return None, at + length
    if kind == 12:
        return _read_struct(view, at, depth - 1)
    raise ValueError  # no header of a page holds a list or a map


def _read_integer(view: mmap.mmap, at: int) -> tuple[int, int]:
    value, at = _read_varint(view, at)
    return (value >> 1) ^ -(value & 1), at


def _read_varint(view: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError
