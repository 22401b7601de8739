"""Canonical bytes and digests of samples: equal for equal values, whatever holds them.

Hand-written, because CBOR and Arrow encode the type of a value with it: 1, 1.0 and numpy.uint8(1)
must be the same cell, in a row as in a column.

::

    row     = [image] form tag width payload
    image   = "R" ndim:u8 extent:u64 ...         only for an image out of a list of images
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

The digest is the first step of everything: it decides the partition of `ContentHash` and the order
of the rows inside every partition.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.blocks import CELLS_PER_BLOCK, CanonicalColumn, row_blocks
from poisonproof.partition.cells import encode_cell, is_number
from poisonproof.partition.containers import as_container, inexact, is_sparse, n_rows, take_rows
from poisonproof.partition.values import normal_floats

CANONICAL_FORM = 1
"""Version of the encoding; another version puts samples into other partitions."""

DIGEST_SIZE = 32
DOMAIN = f"poisonproof.row{CANONICAL_FORM}".encode()
"""Hashed in front of every row, so that no other use of SHA-256 gives the same digests."""

# Eight is where the work of picking the cells out of a dense row passes that of hashing its zeros.
ZEROS_PER_CELL = 8

_DENSE, _PAIRS = b"D", b"S"
_BYTES, _INTEGERS, _FLOATS, _OTHERS = range(4)
_TAGS = (b"B", b"I", b"F", b"O")
_PAYLOAD = {_BYTES: "u1", _INTEGERS: "<i8", _FLOATS: "<f8"}


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


def canonical_bytes(X: Any) -> list[bytes]:
    r"""Return the canonical bytes of each sample: what `sample_digests` hashes.

    Examples
    --------
    >>> canonical_bytes([[1, 2.0, True]])
    [b'DB\x03\x00\x00\x00\x00\x00\x00\x00\x01\x02\x01']
    """
    X = as_container(X)
    result = [b""] * n_rows(X)
    for rows, header, pieces in _encoded(X):
        for row, piece in zip(rows, pieces, strict=True):
            result[row] = header + bytes(piece)
    return result


def are_among(X: Any, others: Any) -> NDArray[np.bool_]:
    """Return which samples of `X` occur in `others`, whatever holds them, shape (n,)."""
    return digests_among(sample_digests(X), [sample_digests(others)])


def digests_among(
    digests: NDArray[np.uint8], others: Iterable[NDArray[np.uint8]]
) -> NDArray[np.bool_]:
    """Return which digests occur in others, given as several arrays."""
    known = {digest.tobytes() for some in others for digest in some}
    return np.fromiter((digest.tobytes() in known for digest in digests), np.bool_, len(digests))


def readable_rows(X: Any) -> NDArray[np.bool_]:
    """Return which rows hold only what the canonical form knows, shape (n,)."""
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


# Rows of numbers.


class _Encoded(NamedTuple):
    """Rows that share a header: the bytes of row ``rows[j]`` are ``header + pieces[j]``."""

    rows: NDArray[np.intp]
    header: bytes
    pieces: Sequence[bytes | memoryview]


def _encoded(X: Any) -> Iterator[_Encoded]:
    for rows, values, shape in row_blocks(X):
        size = len(shape or ())
        prefix = struct.pack(f"<cB{size}Q", b"R", size, *shape) if shape else b""
        if isinstance(values, list):
            yield from _encode_columns(values, rows, prefix)
        elif isinstance(values, np.ndarray):
            yield from _encode_dense(values, rows, prefix)
        else:
            yield from _encode_sparse(values, rows)


def _header(form: bytes, tag: bytes, width: int) -> bytes:
    return struct.pack("<ccQ", form, tag, width)


def _is_mostly_zero(nonzeros: Any, width: int) -> Any:
    """Return whether a row of `width` numbers is encoded as index/value pairs."""
    return ZEROS_PER_CELL * nonzeros < width


def _encode_dense(
    values: NDArray[Any], rows: NDArray[np.intp], prefix: bytes = b""
) -> Iterator[_Encoded]:
    """Encode rows of numbers, shape (m, d)."""
    width = values.shape[1]
    pairs = _is_mostly_zero(np.count_nonzero(values, axis=1), width)
    if pairs.any():
        yield from _encode_pairs(sp.csr_array(values[pairs]), rows[pairs], prefix)
        values, rows = values[~pairs], rows[~pairs]
    for tag, chosen in _by_tag(values, len(values), lambda holds: np.asarray(holds.all(axis=1))):
        part = values if len(chosen) == len(values) else values[chosen]
        pieces: Sequence[bytes]
        if tag == _OTHERS:
            pieces = [b"".join(map(encode_cell, row)) for row in part.tolist()]
        elif width == 0:
            pieces = [b""] * len(part)
        else:
            payload = _payload(part, tag)
            pieces = payload.view(f"V{width * payload.itemsize}").ravel().tolist()
        yield _Encoded(rows[chosen], prefix + _header(_DENSE, _TAGS[tag], width), pieces)


def _encode_sparse(matrix: sp.csr_array, rows: NDArray[np.intp]) -> Iterator[_Encoded]:
    """Encode rows of a CSR matrix without duplicates or stored zeros, the full ones as dense."""
    width = matrix.shape[1]
    pairs = _is_mostly_zero(np.diff(matrix.indptr), width)
    full = np.flatnonzero(~pairs)
    step = max(1, CELLS_PER_BLOCK // max(1, width))
    for start in range(0, len(full), step):
        few = full[start : start + step]
        yield from _encode_dense(matrix[few].toarray(), rows[few])
    if len(full):
        matrix, rows = matrix[np.flatnonzero(pairs)], rows[pairs]
    yield from _encode_pairs(matrix, rows)


def _encode_pairs(
    matrix: sp.csr_array, rows: NDArray[np.intp], prefix: bytes = b""
) -> Iterator[_Encoded]:
    """Encode rows of a CSR matrix as index/value pairs."""
    width = matrix.shape[1]
    index = np.min_scalar_type(max(0, width - 1)).newbyteorder("<")

    def all_of(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        failures = np.concatenate([[0], np.cumsum(~holds)])
        return np.asarray(failures[matrix.indptr[1:]] == failures[matrix.indptr[:-1]])

    for tag, chosen in _by_tag(matrix.data, len(rows), all_of):
        part = matrix if len(chosen) == len(rows) else matrix[chosen]
        ends = part.indptr.tolist()
        pieces: Sequence[bytes | memoryview]
        if tag == _OTHERS:
            written = zip(part.indices.astype(index), part.data.tolist(), strict=True)
            cells = [i.tobytes() + encode_cell(value) for i, value in written]
            pieces = [b"".join(cells[a:b]) for a, b in itertools.pairwise(ends)]
        else:
            pairs = np.empty(part.nnz, dtype=[("index", index), ("value", _PAYLOAD[tag])])
            pairs["index"] = part.indices
            pairs["value"] = _payload(part.data, tag)
            view, size = memoryview(pairs.tobytes()), pairs.itemsize
            pieces = [view[a * size : b * size] for a, b in itertools.pairwise(ends)]
        yield _Encoded(rows[chosen], prefix + _header(_PAIRS, _TAGS[tag], width), pieces)


def _by_tag(
    values: NDArray[Any], n: int, all_of: Callable[[NDArray[np.bool_]], NDArray[np.bool_]]
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each tag with its rows out of `n`; `all_of` finds those that meet a condition.

    Zeros meet every condition, so the stored cells of a sparse row decide as the whole row does.
    """
    tags: NDArray[Any]
    if values.dtype in (np.bool_, np.uint8):
        tags = np.full(n, _BYTES)
    elif values.dtype.kind == "f":
        whole = np.trunc(values) == values
        tags = np.full(n, _FLOATS)
        if all_of(whole).any():
            fits = all_of(whole & (values >= -(2.0**63)) & (values < 2.0**63))
            small = all_of(whole & (values >= 0) & (values <= 255))
            tags = np.select([small, fits], [_BYTES, _INTEGERS], _FLOATS)
    else:
        small = all_of((values >= 0) & (values <= 255))
        fits = all_of(values <= 2**63 - 1)
        exact = small | fits
        if not exact.all():
            exact = all_of(~inexact(values))
        tags = np.select([small, fits, exact], [_BYTES, _INTEGERS, _FLOATS], _OTHERS)
    for tag in np.flatnonzero(np.bincount(tags)):
        yield int(tag), np.flatnonzero(tags == tag)


def _payload(values: NDArray[Any], tag: int) -> NDArray[Any]:
    if tag == _FLOATS:
        values = normal_floats(values)
    return values.astype(_PAYLOAD[tag], copy=False)


# Rows of mixed cells: numbers beside text, dates, or integers beyond 2^53.


def _encode_columns(
    columns: list[CanonicalColumn], rows: NDArray[np.intp], prefix: bytes
) -> Iterator[_Encoded]:
    """Encode rows of cells; those that float64 holds exactly as arrays of numbers are."""
    odd = np.zeros(len(rows), dtype=bool)
    for column in columns:
        odd |= column.odd
    if not odd.all():
        values = np.empty((int((~odd).sum()), len(columns)))
        for j, column in enumerate(columns):
            values[:, j] = column.floats[~odd]
        yield from _encode_dense(values, rows[~odd], prefix)
    alike: dict[bytes, tuple[list[int], list[bytes]]] = {}
    cells = zip(*(column.taken(odd) for column in columns), strict=True)
    for row, (header, piece) in zip(rows[odd], map(_encode_cells, cells), strict=True):
        numbers, pieces = alike.setdefault(header, ([], []))
        numbers.append(row)
        pieces.append(piece)
    for header, (numbers, pieces) in alike.items():
        yield _Encoded(np.array(numbers), prefix + header, pieces)


def _encode_cells(cells: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """Return header and payload of a row of which float64 does not hold every cell."""
    width = len(cells)
    if not all(map(is_number, cells)):
        return _header(_DENSE, b"O", width), b"".join(map(encode_cell, cells))
    int64 = all(c == c // 1 and -(2**63) <= c < 2**63 for c in cells)
    write: Callable[[Any], bytes] = (lambda c: struct.pack("<q", int(c))) if int64 else encode_cell
    tag = b"I" if int64 else b"O"
    kept = [i for i, cell in enumerate(cells) if cell != 0]
    if not _is_mostly_zero(len(kept), width):
        return _header(_DENSE, tag, width), b"".join(map(write, cells))
    size = np.min_scalar_type(max(0, width - 1)).itemsize
    pairs = (i.to_bytes(size, "little") + write(cells[i]) for i in kept)
    return _header(_PAIRS, tag, width), b"".join(pairs)
