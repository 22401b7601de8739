"""Bytes that sort as values do, and a sort that reads no more of them than it needs.

The published order compares the *last* cell first. A key source hands out the next few cells
(from the last backwards) of the rows that are still tied, as bytes whose order is the order of the
values; the sort stops where no rows are tied, which for images is after a few hundred bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.partition.blocks import CanonicalColumn
from poisonproof.partition.canonical import normal_floats
from poisonproof.partition.cells import cell_order

BYTES_PER_PASS = 2**26
LONGEST_KEY = 1024


class KeySource(ABC):
    """Rows that can be compared, a few cells at a time.

    Attributes
    ----------
    cell_size : int
        Bytes of one cell's key.
    """

    cell_size: int

    @abstractmethod
    def keys(self, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.uint8]:
        """Return the keys of the cells ``start:stop`` in the order of comparison.

        The result has one row per entry of `rows`, and no columns once all cells are read.
        """


def distinct_ranks(source: KeySource, n: int) -> NDArray[np.int64]:
    """Return each row's position among the distinct rows, in ascending order.

    Parameters
    ----------
    source : KeySource
        The rows.
    n : int
        How many there are.

    Returns
    -------
    ndarray of int64 of shape (n,)
        Equal rows have equal ranks, and the ranks are 0, 1, 2, ... without gaps.
    """
    rank = np.zeros(n, dtype=np.int64)  # how many rows are known to be smaller
    tied = np.arange(n if n > 1 else 0)
    start = 0
    while len(tied):
        room = BYTES_PER_PASS // (len(tied) * source.cell_size)
        stop = start + min(max(1, room), max(1, LONGEST_KEY // source.cell_size))
        cells = source.keys(tied, start, stop)
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
    order = np.argsort(keys.view(f"S{keys.shape[1]}").ravel(), kind="stable")
    keys, tied = keys[order], tied[order]
    words = keys[:, :8].copy().view(">i8").ravel()
    new_tie = np.ones(len(tied), dtype=bool)
    new_tie[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    first = np.flatnonzero(new_tie)
    lengths = np.diff(np.append(first, len(tied)))
    # Rows of one old rank stand together; the first of them is at old rank + 0.
    old_first = np.searchsorted(words, words[first])
    rank[tied] = np.repeat(words[first] + (first - old_first), lengths)
    return tied[np.repeat(lengths > 1, lengths)]


def ordered_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return numbers (m, c) as big-endian bytes (m, c * size) that sort as the numbers do.

    NaN comes last, as in `numpy.sort`.

    Examples
    --------
    >>> ordered_bytes(np.array([[-1], [0], [1]], dtype=np.int8)).ravel()
    array([127, 128, 129], dtype=uint8)
    """
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


class DenseKeys(KeySource):
    """Rows of an array of numbers, (n, d), flattened in the order that `columns` gives."""

    def __init__(self, values: NDArray[Any], columns: NDArray[np.intp] | None = None) -> None:
        self._values = values
        self._columns = columns
        self.cell_size = 8 if values.dtype.kind == "f" else values.dtype.itemsize

    def keys(self, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.uint8]:
        """Return the cells from the last backwards."""
        width = self._values.shape[1]
        first, last = max(0, width - stop), max(0, width - start)
        if self._columns is None:
            part = self._values[:, first:last]
            part = part if len(rows) == len(part) else part[rows]
        else:
            part = self._values[rows[:, None], self._columns[first:last]]
        part = np.asarray(part)[:, ::-1]
        return ordered_bytes(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("=")))


class ColumnKeys(KeySource):
    """Rows of columns of any kind; `column` returns column j, all n cells of it."""

    cell_size = 8

    def __init__(self, column: Callable[[int], CanonicalColumn], width: int) -> None:
        self._column = column
        self._width = width

    def keys(self, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.uint8]:
        """Return float64 keys of columns of numbers, and ranks of the others."""
        parts = []
        for j in range(self._width - 1 - start, self._width - 1 - min(stop, self._width), -1):
            column = self._column(j)
            values = column.floats if column.cells is None else _cell_ranks(column)
            parts.append(ordered_bytes(values[rows][:, None]))
        return np.hstack(parts) if parts else np.empty((len(rows), 0), dtype=np.uint8)


def _cell_ranks(column: CanonicalColumn) -> NDArray[np.uint64]:
    keys = [cell_order(column.cell(i)) for i in range(len(column.floats))]
    position = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([position[key] for key in keys], dtype=np.uint64)


class _TokenKeys(KeySource):
    """Rows told by their cells that are not zero, from the last backwards.

    At the first difference of two rows, the row whose next such cell stands later has a zero
    against it: it is the larger row if that cell is positive, the smaller if it is negative. A
    token of sign, position and value, whose order says so, replaces the zeros in between.
    """

    cell_size = 17

    @abstractmethod
    def tokens(self, row: int, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return positions and values of the row's cells ``start:stop``, the last one first."""

    @abstractmethod
    def exhausted(self, rows: NDArray[np.intp], start: int) -> bool:
        """Whether none of the rows has a cell `start`."""

    def keys(self, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[np.uint8]:
        """Return tokens; the end of a row sorts between negative and positive cells."""
        if self.exhausted(rows, start):
            return np.empty((len(rows), 0), dtype=np.uint8)
        found = [self.tokens(row, start, stop) for row in rows]
        counts = np.array([len(positions) for positions, _ in found])
        width = stop - start
        slots = np.repeat(np.arange(len(rows)) * width, counts) + _within(counts)
        keys = np.zeros((len(rows) * width, self.cell_size), dtype=np.uint8)
        keys[:, 0] = 1
        values = np.concatenate([values for _, values in found])[:, None]
        positions = np.concatenate([positions for positions, _ in found]).astype(np.uint64)
        negative = (values < 0).ravel()
        keys[slots, 0] = np.where(negative, 0, 2)
        keys[slots, 1:9] = ordered_bytes(np.where(negative, ~positions, positions)[:, None])
        value_keys = ordered_bytes(values)
        keys[slots, 17 - value_keys.shape[1] :] = value_keys
        return keys.reshape(len(rows), -1)


def _within(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return 0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1, and so on."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts)


class SparseKeys(_TokenKeys):
    """Rows of a CSR matrix without duplicates or stored zeros."""

    def __init__(self, matrix: sp.csr_array) -> None:
        self._matrix = matrix

    def tokens(self, row: int, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return stored cells."""
        first, end = self._matrix.indptr[row], self._matrix.indptr[row + 1]
        chosen = slice(max(first, end - stop), max(first, end - start))
        return self._matrix.indices[chosen][::-1], self._matrix.data[chosen][::-1]

    def exhausted(self, rows: NDArray[np.intp], start: int) -> bool:
        """Whether all rows store `start` cells or fewer."""
        indptr = self._matrix.indptr
        return bool((indptr[rows + 1] - indptr[rows] <= start).all())


class ImageKeys(_TokenKeys):
    """Images of different sizes, each padded with zeros behind its last row and column."""

    def __init__(self, images: Sequence[NDArray[Any]]) -> None:
        self._images = images
        self._frame = tuple(np.max([image.shape for image in images], axis=0))
        self._dtype = np.result_type(*{image.dtype for image in images})

    def tokens(self, row: int, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return pixels that are not black, with their positions in the padded image."""
        image = self._images[row]
        where = np.nonzero(image)
        chosen = slice(max(0, len(where[0]) - stop), max(0, len(where[0]) - start))
        where = tuple(axis[chosen][::-1] for axis in where)
        return np.ravel_multi_index(where, self._frame), image[where].astype(self._dtype)

    def exhausted(self, rows: NDArray[np.intp], start: int) -> bool:
        """Whether all images have `start` such pixels or fewer."""
        return all(np.count_nonzero(self._images[row]) <= start for row in rows)
