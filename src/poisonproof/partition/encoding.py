"""Canonical bytes of rows of numbers, a block at a time.

::

    row     = [image] form tag width payload
    image   = "R" ndim:u8 extent:u64 ...         only for an image out of a sequence
    form    = "D"  every cell, in order
            | "S"  index/value pairs of the cells that are not zero: rows of numbers of which
                   fewer than one in eight is not zero
    tag     = "B"  integers 0..255, one byte each
            | "I"  integers, int64 each
            | "F"  numbers that float64 holds exactly, float64 each (one zero, one NaN)
            | "O"  anything else, each cell with a tag of its own (`cells.encode_cell`)
    width   = u64, the number of cells

The first tag that fits all cells of the row is used. All integers are little-endian; an index takes
the fewest bytes of 1, 2, 4, 8 that hold every index of the row.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.partition.blocks import CELLS_PER_BLOCK
from poisonproof.partition.cells import encode_cell
from poisonproof.partition.columns import inexact

__all__ = [
    "Encoded",
    "encode_dense",
    "encode_sparse",
    "image_prefix",
    "index_dtype",
    "is_mostly_zero",
    "normal_floats",
    "row_header",
]

DENSE, PAIRS = b"D", b"S"
BYTES, INTEGERS, FLOATS, OTHERS = range(4)
TAGS = (b"B", b"I", b"F", b"O")
PAYLOAD: dict[int, str] = {BYTES: "u1", INTEGERS: "<i8", FLOATS: "<f8"}

# Eight is where the work of picking the cells out of a dense row passes that of hashing its zeros.
ZEROS_PER_CELL = 8


class Encoded(NamedTuple):
    """Rows that share a header: the bytes of row ``rows[j]`` are ``header + pieces[j]``."""

    rows: NDArray[np.intp]
    header: bytes
    pieces: Sequence[bytes | memoryview]


def is_mostly_zero(nonzeros: Any, width: int) -> Any:
    """Whether a row of `width` numbers is encoded as index/value pairs."""
    return ZEROS_PER_CELL * nonzeros < width


def row_header(form: bytes, tag: bytes, width: int) -> bytes:
    """Return the bytes in front of a payload."""
    return struct.pack("<ccQ", form, tag, width)


def image_prefix(shape: tuple[int, ...] | None) -> bytes:
    """Return the bytes in front of an image out of a sequence; none for other rows."""
    if shape is None:
        return b""
    return struct.pack(f"<cB{len(shape)}Q", b"R", len(shape), *shape)


def index_dtype(width: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds the indices of a row of `width` cells."""
    return np.min_scalar_type(max(0, width - 1)).newbyteorder("<")


def normal_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return a copy as float64 with one zero and one NaN.

    Examples
    --------
    >>> normal_floats(np.array([-0.0, 1.5])).tolist()
    [0.0, 1.5]
    """
    result = values.astype(np.float64)
    result += 0.0  # -0.0 + 0.0 is 0.0
    missing = np.isnan(result)
    if missing.any():
        result[missing] = np.nan
    return result


def encode_dense(
    values: NDArray[Any], rows: NDArray[np.intp], prefix: bytes = b""
) -> Iterator[Encoded]:
    """Encode rows of numbers, shape (m, d)."""
    width = values.shape[1]
    kinds = _row_tags(values, len(values), lambda holds: np.asarray(holds.all(axis=1)))
    kinds += len(TAGS) * is_mostly_zero(_nonzeros_per_row(values), width)
    for kind in np.flatnonzero(np.bincount(kinds)):
        pairs, tag = divmod(int(kind), len(TAGS))
        chosen = np.flatnonzero(kinds == kind)
        part = values if len(chosen) == len(values) else values[chosen]
        if pairs:
            pieces = _pairs(*_compress(part), width, tag)
        elif tag == OTHERS:
            pieces = [b"".join(map(encode_cell, row)) for row in part.tolist()]
        else:
            pieces = _slices(_payload(part, tag))
        form = PAIRS if pairs else DENSE
        yield Encoded(rows[chosen], prefix + row_header(form, TAGS[tag], width), pieces)


def encode_sparse(matrix: sp.csr_array, rows: NDArray[np.intp]) -> Iterator[Encoded]:
    """Encode the rows of a CSR matrix without duplicates or stored zeros, shape (m, d).

    Rows of which at least one cell in eight is not zero are written out, a few at a time.
    """
    width = matrix.shape[1]
    pairs = is_mostly_zero(np.diff(matrix.indptr), width)
    full = np.flatnonzero(~pairs)
    step = max(1, CELLS_PER_BLOCK // max(1, width))
    for start in range(0, len(full), step):
        few = full[start : start + step]
        yield from encode_dense(matrix[few].toarray(), rows[few])
    if len(full):
        matrix, rows = matrix[np.flatnonzero(pairs)], rows[pairs]
    tags = _row_tags(matrix.data, len(rows), lambda holds: _all_of_segment(holds, matrix.indptr))
    for tag in np.flatnonzero(np.bincount(tags)):
        chosen = np.flatnonzero(tags == tag)
        part = matrix if len(chosen) == len(rows) else matrix[chosen]
        pieces = _pairs(part.indptr, part.indices, part.data, width, int(tag))
        yield Encoded(rows[chosen], row_header(PAIRS, TAGS[tag], width), pieces)


def _row_tags(
    values: NDArray[Any], n: int, all_of: Callable[[NDArray[np.bool_]], NDArray[np.bool_]]
) -> NDArray[np.intp]:
    """Return the tag of each of `n` rows; `all_of` says which rows hold a condition throughout.

    Zeros satisfy every condition, so the stored cells of a sparse row decide as the whole row does.
    """
    if values.dtype in (np.bool_, np.uint8):
        return np.full(n, BYTES)
    if values.dtype.kind == "f":
        whole = np.trunc(values) == values
        if not all_of(whole).any():
            return np.full(n, FLOATS)
        fits = all_of(whole & (values >= -(2.0**63)) & (values < 2.0**63))
        small = all_of(whole & (values >= 0) & (values <= 255))
        return np.select([small, fits], [BYTES, INTEGERS], FLOATS)
    small = all_of((values >= 0) & (values <= 255))
    fits = all_of(values <= 2**63 - 1)
    exact = small | fits
    if not exact.all():
        exact = all_of(~inexact(values))
    return np.select([small, fits, exact], [BYTES, INTEGERS, FLOATS], OTHERS)


def _nonzeros_per_row(values: NDArray[Any]) -> NDArray[np.intp]:
    mask = values != 0
    if mask.shape[1] % 8:
        return np.asarray(np.count_nonzero(mask, axis=1))
    # Eight ones are added at a time, each in its own byte of a word; 255 words cannot carry over.
    words = mask.view(np.uint64)
    counts = np.zeros(len(mask), dtype=np.intp)
    for start in range(0, words.shape[1], 255):
        lanes = words[:, start : start + 255].sum(axis=1)
        counts += lanes.view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.intp)
    return counts


def _all_of_segment(
    holds: NDArray[np.bool_], indptr: NDArray[np.signedinteger]
) -> NDArray[np.bool_]:
    failures = np.concatenate([[0], np.cumsum(~holds)])
    return np.asarray(failures[indptr[1:]] == failures[indptr[:-1]])


def _compress(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]:
    """Return the cells that are not zero as in CSR: row starts, column indices, values."""
    m, width = values.shape
    where = np.flatnonzero(values != 0)
    starts = np.arange(m + 1) * width
    indptr = np.searchsorted(where, starts)
    # Unsigned integers wrap around, so the narrow difference is right though its terms are cut.
    dtype = index_dtype(width)
    indices = where.astype(dtype) - np.repeat(starts[:-1].astype(dtype), np.diff(indptr))
    return indptr, indices, values.reshape(-1)[where]


def _payload(values: NDArray[Any], tag: int) -> NDArray[Any]:
    if tag == FLOATS:
        values = normal_floats(values)
    return values.astype(PAYLOAD[tag], copy=False)


def _slices(payload: NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of a contiguous (m, d) array."""
    size = payload.shape[1] * payload.itemsize
    if size == 0:
        return [b""] * len(payload)
    pieces: list[bytes] = payload.view(f"V{size}").ravel().tolist()
    return pieces


def _pairs(
    indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], width: int, tag: int
) -> list[memoryview] | list[bytes]:
    """Return the index/value pairs of each row; all rows have the same tag."""
    ends = indptr.tolist()
    if tag == OTHERS:
        written = indices.astype(index_dtype(width))
        cells = [i.tobytes() + encode_cell(v) for i, v in zip(written, data.tolist(), strict=True)]
        return [b"".join(cells[a:b]) for a, b in itertools.pairwise(ends)]
    pairs = np.empty(len(data), dtype=[("index", index_dtype(width)), ("value", PAYLOAD[tag])])
    pairs["index"] = indices
    pairs["value"] = _payload(data, tag)
    view, size = memoryview(pairs.tobytes()), pairs.itemsize
    return [view[a * size : b * size] for a, b in itertools.pairwise(ends)]
