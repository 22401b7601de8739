"""The order of `SortedIndex`: distinct samples, the last cell compared first.

Rows become bytes that sort as their values do. Only the next few cells (from the last backwards) of
rows that are still tied are read; for images the sort ends after a few hundred bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.blocks import (
    CanonicalColumn,
    canonical_column,
    plain_csr,
    plain_numbers,
    table_columns,
)
from poisonproof.partition.cells import cell_order
from poisonproof.partition.containers import (
    as_container,
    frame_columns,
    inexact,
    is_pandas,
    is_sparse,
    n_rows,
    row_array,
)
from poisonproof.partition.values import normal_floats

BYTES_PER_PASS = 2**26
LONGEST_KEY = 1024


def sample_ranks(X: Any) -> NDArray[np.int64]:
    """Return each row's position among the distinct rows, in ascending order.

    Equal rows have equal ranks, and the ranks are 0, 1, 2, ... without gaps.
    """
    X = as_container(X)
    n = n_rows(X)
    if n == 0:
        return np.empty(0, dtype=np.int64)
    values = _comparable(X)
    cell_size = 8 if values.dtype.kind == "f" else values.dtype.itemsize
    rank = np.zeros(n, dtype=np.int64)  # how many rows are known to be smaller
    tied = np.arange(n if n > 1 else 0)
    start = 0
    while len(tied):
        room = BYTES_PER_PASS // (len(tied) * cell_size)
        stop = start + min(max(1, room), max(1, LONGEST_KEY // cell_size))
        cells = _cells(values, tied, start, stop)
        if cells.shape[1] == 0:
            break
        tied = _split_ties(rank, tied, cells)
        start = stop
    return np.unique(rank, return_inverse=True)[1].astype(np.int64)


def _split_ties(
    rank: NDArray[np.int64], tied: NDArray[np.intp], cells: NDArray[np.uint8]
) -> NDArray[np.intp]:
    """Sort rows that share a rank by their next cells; return those that still share one."""
    keys = np.empty((len(tied), 8 + cells.shape[1]), dtype=np.uint8)
    keys[:, :8] = rank[tied].astype(">i8").view(np.uint8).reshape(-1, 8)
    keys[:, 8:] = cells
    words = keys.view(f"S{keys.shape[1]}").ravel()
    found, groups, counts = np.unique(words, return_inverse=True, return_counts=True)
    old = np.empty(len(found), dtype=np.int64)
    old[groups] = rank[tied]
    before = np.cumsum(counts) - counts  # rows of smaller keys, also of smaller ranks
    rank[tied] = (old + before - before[np.searchsorted(old, old)])[groups]
    return tied[counts[groups] > 1]


# From containers to what can be compared.


def _comparable(X: Any) -> Any:
    """Return samples as numbers (n, d) or a CSC matrix; cells of other kinds by their ranks."""
    if is_sparse(X):
        return _by_column(plain_csr(X))
    if isinstance(X, list):
        X = _rectangle([row_array(sample, row) for row, sample in enumerate(X)])
        if is_sparse(X):
            return X
    rows = np.arange(len(X))
    if is_pandas(X):
        return _ranked(
            [canonical_column(c, rows, j) for j, c in enumerate(frame_columns(X))], len(X)
        )
    values = X.reshape(len(X), int(np.prod(X.shape[1:])))
    if values.dtype.kind not in "biuf":
        return _ranked(table_columns(values, rows), len(X))
    return plain_numbers(values, rows) if values.itemsize > 8 else values


def _ranked(columns: list[CanonicalColumn], n: int) -> NDArray[np.float64]:
    """Return columns as float64, those with other cells by the ranks of these."""
    values = np.empty((n, len(columns)))
    for j, column in enumerate(columns):
        values[:, j] = column.floats
        if column.cells is not None:
            keys = [cell_order(cell) for cell in column.taken(np.arange(n))]
            position = {key: rank for rank, key in enumerate(sorted(set(keys)))}
            values[:, j] = [position[key] for key in keys]
    return values


def _rectangle(arrays: list[NDArray[Any]]) -> Any:
    """Return rows of a list as one array, or as a sparse matrix of images padded with zeros."""
    if len({(array.dtype, array.shape) for array in arrays}) == 1:
        return np.stack(arrays)
    dimensions = sorted({array.ndim for array in arrays})
    if len(dimensions) > 1:
        raise InvalidRowsError(
            f"SortedIndex compares samples of one kind, but X has rows of {dimensions} dimensions."
        )
    if dimensions == [1] and len({array.size for array in arrays}) == 1:
        return np.stack([np.fromiter(array, dtype=object) for array in arrays])
    if any(array.dtype.kind not in "biuf" or inexact(array).any() for array in arrays):
        raise InvalidRowsError(
            "SortedIndex pads samples of different sizes with black, so they must be arrays of "
            "numbers that float64 holds exactly."
        )
    frame = tuple(np.max([array.shape for array in arrays], axis=0))
    size = int(np.prod(frame))
    index = np.int32 if size < 2**31 else np.int64
    where = [np.nonzero(array) for array in arrays]
    indices = [np.ravel_multi_index(at, frame).astype(index) for at in where]
    data = [array[at].astype(np.float64) for array, at in zip(arrays, where, strict=True)]
    starts = np.cumsum([0, *map(len, data)])
    stored = np.concatenate(data), np.concatenate(indices), starts
    return _by_column(sp.csr_array(stored, shape=(len(arrays), size)))


def _by_column(matrix: sp.csr_array) -> sp.csc_array:
    """Return a CSC matrix without the columns in which all rows are zero."""
    used, places = np.unique(matrix.indices, return_inverse=True)
    stored = matrix.data, places, matrix.indptr
    return sp.csr_array(stored, shape=(matrix.shape[0], len(used))).tocsc()


# From numbers to bytes.


def ordered_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return numbers (m, c) as big-endian bytes (m, c * size) that sort as the numbers do."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        bits = normal_floats(values).view(np.uint64)
        negative = (bits >> np.uint64(63)).astype(bool)
        words = np.where(negative, ~bits, bits | np.uint64(2**63))
    elif kind == "i":
        words = values.view(f"u{size}") ^ np.array(1 << (8 * size - 1), dtype=f"u{size}")
    else:
        words = values.astype(np.uint8) if kind == "b" else values
    words = words.astype(words.dtype.newbyteorder(">"))
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(values), -1)


def _cells(values: Any, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.uint8]:
    """Return the bytes of some cells of rows, counted from the last backwards."""
    width = values.shape[1]
    part = values[:, max(0, width - stop) : max(0, width - start)]
    cells = part.tocsr()[rows].toarray() if is_sparse(part) else part[rows]
    cells = np.asarray(cells)[:, ::-1]
    return ordered_bytes(np.ascontiguousarray(cells, dtype=cells.dtype.newbyteorder("=")))
