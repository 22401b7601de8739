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

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.blocks import (
    CELLS_PER_BLOCK,
    CanonicalColumn,
    CellBlock,
    SparseBlock,
    canonical_column,
    inexact,
    row_blocks,
)
from poisonproof.partition.cells import encode_cell, is_number
from poisonproof.partition.containers import as_container, is_sparse, n_rows, take_rows

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


# Canonical bytes of rows of mixed cells: numbers beside text, dates, or integers beyond 2^53.

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


# Digests of samples: equal for equal values, whatever holds them.
#
# This is the first step of everything: the digest decides the partition of `ContentHash` and the
# order of the rows inside every partition.

CANONICAL_FORM = 1
"""Version of the encoding; another version puts samples into other partitions."""

DIGEST_SIZE = 32
DOMAIN = f"poisonproof.row{CANONICAL_FORM}".encode()
"""Hashed in front of every row, so that these digests are nobody else's."""


def sample_digests(X: Any) -> NDArray[np.uint8]:
    """Return one cryptographic digest per sample.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of n samples
        See ``docs/canonical-form.md`` for what is understood.

    Returns
    -------
    ndarray of uint8 of shape (n, 32)
        SHA-256 of `DOMAIN` and the canonical bytes of each row.

    Guarantee
    ---------
    A digest depends on the values of its own row alone: not on other rows, the row's number, the
    dtype, the container, its memory layout or byte order, or the names of columns.

    Assumes
    -------
    Nobody can find two samples with the same SHA-256 digest.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = np.array([[0, 3, 0], [1, 2, 3]])
    >>> np.array_equal(sample_digests(X), sample_digests(sp.csr_matrix(X.astype(float))))
    True
    """
    X = as_container(X)
    digests = np.empty((n_rows(X), DIGEST_SIZE), dtype=np.uint8)
    for rows, header, pieces in _encoded(X):
        # Copying a hash that has read the header is cheaper than joining header and payload.
        fresh = hashlib.sha256(DOMAIN + header).copy
        found = []
        for piece in pieces:
            state = fresh()
            state.update(piece)
            found.append(state.digest())
        digests[rows] = np.frombuffer(b"".join(found), dtype=np.uint8).reshape(-1, DIGEST_SIZE)
    return digests


def are_among(X: Any, others: Any) -> NDArray[np.bool_]:
    """Return which samples of `X` are among others, whatever holds them, shape (n,).

    >>> are_among([[1, 2], [3, 4]], np.array([[3.0, 4.0]]))
    array([False,  True])
    """
    return digests_among(sample_digests(X), [sample_digests(others)])


def digests_among(
    digests: NDArray[np.uint8], others: Iterable[NDArray[np.uint8]]
) -> NDArray[np.bool_]:
    """Return which digests are among others, that come in several arrays."""
    known = {digest.tobytes() for some in others for digest in some}
    return np.fromiter((digest.tobytes() in known for digest in digests), np.bool_, len(digests))


def canonical_bytes(X: Any) -> list[bytes]:
    r"""Return the canonical bytes of each sample: what `sample_digests` hashes.

    Examples
    --------
    >>> canonical_bytes([[1, 2.0, True]])
    [b'DB\x03\x00\x00\x00\x00\x00\x00\x00\x01\x02\x01']
    """
    X = as_container(X)
    result = [b""] * n_rows(X)
    for encoded in _encoded(X):
        for row, piece in zip(encoded.rows, encoded.pieces, strict=True):
            result[row] = encoded.header + bytes(piece)
    return result


def _encoded(X: Any) -> Iterator[Encoded]:
    for block in row_blocks(X):
        if isinstance(block, SparseBlock):
            yield from encode_sparse(block.matrix, block.rows)
        elif isinstance(block, CellBlock):
            yield from encode_cells(block)
        else:
            yield from encode_dense(block.values, block.rows, image_prefix(block.shape))


# Which rows have a canonical form at all.


def readable_rows(X: Any) -> NDArray[np.bool_]:
    """Return which rows hold only what the canonical form knows, shape (n,).

    Whether a row does is its own matter. Rows are looked at together, and by halves where one of
    them raises, so many readable rows cost little.

    Examples
    --------
    >>> readable_rows([[1, 2], [3, 4j], [5, "six"]])
    array([ True, False,  True])
    """
    X = as_container(X)
    readable = np.ones(n_rows(X), dtype=np.bool_)
    if is_sparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.itemsize <= 8):
        return readable
    waiting = [np.arange(len(readable))]
    while waiting:
        rows = waiting.pop()
        try:
            sample_digests(take_rows(X, rows))
        except InvalidRowsError:
            if len(rows) == 1:
                readable[rows] = False
            else:
                waiting += np.array_split(rows, 2)
    return readable
