"""Canonical bytes of rows of mixed cells: numbers beside text, dates, or integers beyond 2^53."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.partition.blocks import CellBlock
from poisonproof.partition.cells import encode_cell, is_number
from poisonproof.partition.columns import CanonicalColumn, canonical_column
from poisonproof.partition.encoding import (
    Encoded,
    encode_dense,
    image_prefix,
    index_dtype,
    is_mostly_zero,
    row_header,
)

__all__ = ["encode_cells"]

_encode_repeated = lru_cache(maxsize=4096)(encode_cell)


def encode_cells(block: CellBlock) -> Iterator[Encoded]:
    """Encode rows of cells.

    Rows that float64 holds exactly take the same way as arrays of numbers. The others are the
    *odd* rows: those with text or dates are written column by column, and the few with only
    numbers one by one.
    """
    columns = [canonical_column(c, block.rows, j) for j, c in enumerate(block.columns)]
    prefix = image_prefix(block.shape)
    odd = np.zeros(len(block.rows), dtype=bool)
    for column in columns:
        odd |= column.odd
    plain = np.flatnonzero(~odd)
    if len(plain):
        values = np.empty((len(plain), len(columns)))
        for j, column in enumerate(columns):
            values[:, j] = column.floats[plain]
        yield from encode_dense(values, block.rows[plain], prefix)
    if odd.any():
        texts = _rows_with_text(columns, odd)
        yield from _encode_texts(columns, np.flatnonzero(texts), block.rows, prefix)
        numbers = np.flatnonzero(odd & ~texts)
        integers, whole = _int64_rows(columns, numbers)
        if whole.any():
            yield from encode_dense(integers[whole], block.rows[numbers[whole]], prefix)
        for row in numbers[~whole]:
            header, piece = encode_numbers([column.cell(row) for column in columns])
            yield Encoded(block.rows[row : row + 1], prefix + header, [piece])


def encode_numbers(cells: Sequence[Any]) -> tuple[bytes, bytes]:
    r"""Encode one row of exact Python numbers that no array holds, as header and payload.

    Examples
    --------
    >>> encode_numbers([2**53 + 1, 0.5])[0]
    b'DO\x02\x00\x00\x00\x00\x00\x00\x00'
    """
    width = len(cells)
    kept = [(i, cell) for i, cell in enumerate(cells) if cell != 0]
    if not is_mostly_zero(len(kept), width):
        return row_header(b"D", b"O", width), b"".join(map(encode_cell, cells))
    size = index_dtype(width).itemsize
    pairs = (i.to_bytes(size, "little") + encode_cell(cell) for i, cell in kept)
    return row_header(b"S", b"O", width), b"".join(pairs)


def _int64_rows(
    columns: list[CanonicalColumn], rows: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return `rows` as int64, and which of them that holds exactly."""
    values = np.zeros((len(rows), len(columns)), dtype=np.int64)
    fits = np.ones(len(rows), dtype=bool)
    for j, column in enumerate(columns):
        floats = column.floats[rows]
        whole = _fits_int64(floats)
        values[whole, j] = floats[whole]
        if column.cells is not None:
            for i in np.flatnonzero(column.odd[rows]):
                cell = column.cells[rows[i]]
                whole[i] = isinstance(cell, int) and -(2**63) <= cell < 2**63
                values[i, j] = cell if whole[i] else 0
        fits &= whole
    return values, fits


def _fits_int64(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((np.trunc(values) == values) & (values >= -(2.0**63)) & (values < 2.0**63))


def _rows_with_text(columns: list[CanonicalColumn], odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
    texts = np.zeros(len(odd), dtype=bool)
    for column in columns:
        if column.cells is not None:
            where = np.flatnonzero(column.odd & ~texts)
            texts[where] = [not is_number(cell) for cell in column.cells[where]]
    return texts


def _encode_texts(
    columns: list[CanonicalColumn],
    chosen: NDArray[np.intp],
    rows: NDArray[np.intp],
    prefix: bytes,
) -> Iterator[Encoded]:
    if len(chosen) == 0:
        return
    encoded = []
    for column in columns:
        cells = _encode_floats(column.floats[chosen])
        if column.cells is not None:
            for i in np.flatnonzero(column.odd[chosen]):
                cells[i] = _encode_repeated(column.cells[chosen[i]])
        encoded.append(cells)
    pieces = [b"".join(cells) for cells in zip(*encoded, strict=True)]
    yield Encoded(rows[chosen], prefix + row_header(b"D", b"O", len(columns)), pieces)


def _encode_floats(values: NDArray[np.float64]) -> list[bytes]:
    """Return what `encode_cell` returns for each float."""
    whole = _fits_int64(values)
    cells = np.empty(len(values), dtype=[("tag", "S1"), ("value", "<i8")])
    cells["tag"] = np.where(whole, b"i", b"f")
    cells["value"] = np.where(whole, np.where(whole, values, 0).astype("<i8"), values.view("<i8"))
    result: list[bytes] = cells.view("V9").tolist()
    rare = np.isnan(values) | ((np.trunc(values) == values) & ~whole)
    for i in np.flatnonzero(rare):
        result[i] = encode_cell(float(values[i]))
    return result
