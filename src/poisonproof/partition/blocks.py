"""A column of any kind, split into what float64 holds exactly and what it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.cells import (
    Cell,
    NoCanonicalFormError,
    canonical_cell,
    is_exact_float,
    time_cells,
)
from poisonproof.partition.containers import (
    DTYPES,
    Column,
    as_container,
    exact_sums,
    frame_columns,
    frame_slice,
    frame_width,
    is_frame,
    is_pandas,
    is_sparse,
    n_rows,
    sequence_windows,
)

ALLOWED = (
    "Allowed are real numbers, booleans, text, bytes, dates, durations and missing values; "
    "convert the column first."
)


class CanonicalColumn(NamedTuple):
    """The canonical cells of one column.

    Attributes
    ----------
    floats : ndarray of float64 of shape (m,)
        The cells that float64 holds exactly; NaN where a value is missing.
    odd : ndarray of bool of shape (m,)
        The other cells: text, bytes, dates, durations and numbers that float64 would round.
    cells : ndarray of object of shape (m,), or None
        The canonical cells where `odd` holds; None if it never does.
    """

    floats: NDArray[np.float64]
    odd: NDArray[np.bool_]
    cells: NDArray[np.object_] | None

    def cell(self, row: int | np.intp) -> Cell:
        """Return one canonical cell."""
        if self.cells is not None and self.odd[row]:
            found: Cell = self.cells[row]
            return found
        return float(self.floats[row])


def canonical_column(column: Column, rows: NDArray[np.intp], position: int) -> CanonicalColumn:
    """Return the canonical cells of `column`.

    Parameters
    ----------
    column : Column
        The cells, m of them.
    rows : ndarray of shape (m,)
        The caller's row numbers, for error messages.
    position : int
        The column's number, for error messages.

    Raises
    ------
    InvalidRowsError
        If a cell has no canonical form. The message names its row and column.
    """
    values = column.values
    kind = values.dtype.kind
    if kind in "biuf":
        result = _numbers(values, rows, position)
    elif kind in "Mm":
        result = _times(values, rows, position)
    elif kind in "OUS":
        result = _objects(values, rows, position)
    else:
        raise InvalidRowsError(f"Column {position} has dtype {values.dtype}. {ALLOWED}")
    if column.missing is not None:
        result.floats[column.missing] = np.nan
        result.odd[column.missing] = False
    return result


def inexact(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where float64 would round an array of numbers.

    Examples
    --------
    >>> inexact(np.array([2**53, 2**53 + 1]))
    array([False,  True])
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "b" or size < 8 or (kind == "f" and size == 8):
        return np.zeros(values.shape, dtype=bool)
    if kind == "f":
        with np.errstate(over="ignore"):  # the overflow to infinity is found by the comparison
            rounded = values.astype(np.float64)
        return np.asarray((rounded != values) & ~np.isnan(values))
    limit = 2.0 ** (63 if kind == "i" else 64)
    rounded = values.astype(np.float64)
    # The largest integers round up to the limit itself, which does not fit back.
    fits = rounded < limit
    return np.asarray(~fits | (np.where(fits, rounded, 0).astype(values.dtype) != values))


def refuse_cell(row: int, position: int, reason: object) -> InvalidRowsError:
    """Return the error for a cell without a canonical form."""
    return InvalidRowsError(f"Row {row}, column {position}: {reason}. {ALLOWED}")


def _numbers(values: NDArray[Any], rows: NDArray[np.intp], position: int) -> CanonicalColumn:
    odd = inexact(values)
    if not odd.any():
        return CanonicalColumn(values.astype(np.float64), odd, None)
    if values.dtype.kind == "f":
        first = int(odd.argmax())
        reason = f"{values[first]!r} is not exactly a float64"
        raise refuse_cell(rows[first], position, reason)
    cells = np.empty(len(values), dtype=object)
    cells[odd] = values[odd].tolist()
    return CanonicalColumn(values.astype(np.float64), odd, cells)


def _times(values: NDArray[Any], rows: NDArray[np.intp], position: int) -> CanonicalColumn:
    cells: Iterable[Any]
    try:
        cells = time_cells(values)
    except NoCanonicalFormError:
        cells = values  # one by one, to name the row
    return _objects(np.fromiter(cells, dtype=object, count=len(values)), rows, position)


def _objects(values: NDArray[Any], rows: NDArray[np.intp], position: int) -> CanonicalColumn:
    floats = np.full(len(values), np.nan)
    odd = np.zeros(len(values), dtype=bool)
    cells = np.empty(len(values), dtype=object)
    for i, item in enumerate(values.tolist()):
        try:
            cell = canonical_cell(item)
        except NoCanonicalFormError as error:
            raise refuse_cell(rows[i], position, error) from None
        if is_exact_float(cell):
            floats[i] = cell
        else:
            odd[i] = True
            cells[i] = cell
    return CanonicalColumn(floats, odd, cells if odd.any() else None)


# Any container of samples, read as blocks of rows of bounded size.
#
# Three kinds of block are enough: a rectangle of numbers, a sparse rectangle of numbers, and
# columns of cells of any kind. What reads them (digests, pixel sums) never asks where they came
# from.

CELLS_PER_BLOCK = 2**19
"""A block of float64 takes 4 MiB: small beside the data, large beside Python's overhead."""

FRAME_ROWS = 4096
"""Slicing a frame costs per column, so its blocks have at least this many rows."""


@dataclass(frozen=True)
class DenseBlock:
    """Rows of numbers.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        The caller's row numbers.
    values : ndarray of shape (m, d)
        Booleans, integers or float64, in C order.
    shape : tuple of int, or None
        The shape of each sample, if it is an image out of a sequence of images.
    """

    rows: NDArray[np.intp]
    values: NDArray[Any]
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class SparseBlock:
    """Rows of numbers as a CSR matrix (m, d) without duplicates or stored zeros."""

    rows: NDArray[np.intp]
    matrix: sp.csr_array


@dataclass(frozen=True)
class CellBlock:
    """Rows of cells of any kind, as d columns of m cells; `shape` as in `DenseBlock`."""

    rows: NDArray[np.intp]
    columns: list[Column]
    shape: tuple[int, ...] | None = None


Block: TypeAlias = DenseBlock | SparseBlock | CellBlock


def row_blocks(X: Any) -> Iterator[Block]:
    """Yield the samples of `X` in blocks of bounded size.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of n samples
        See ``docs/canonical-form.md`` for the containers and their values.

    Yields
    ------
    DenseBlock, SparseBlock or CellBlock
        Together they hold each row once.
    """
    X = as_container(X)
    if is_sparse(X):
        yield from _sparse_blocks(X)
    elif is_frame(X):
        yield from _frame_blocks(X)
    elif isinstance(X, np.ndarray):
        width = int(np.prod(X.shape[1:]))
        for start in range(0, len(X), step := max(1, CELLS_PER_BLOCK // max(1, width))):
            part = np.asarray(X[start : start + step])
            rows = np.arange(start, start + len(part))
            yield _block(rows, part.reshape(len(part), width), None)
    else:
        for rows, values, shape in sequence_windows(X, CELLS_PER_BLOCK):
            yield _block(rows, values, shape)


def _block(rows: NDArray[np.intp], values: NDArray[Any], shape: tuple[int, ...] | None) -> Block:
    if values.dtype.kind in "biuf":
        return DenseBlock(rows, plain_numbers(values, rows), shape)
    return CellBlock(rows, [Column(values[:, j]) for j in range(values.shape[1])], shape)


def plain_numbers(values: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Return numbers in C order and native byte order, all that are not integers as float64.

    Raises
    ------
    InvalidRowsError
        If float64 cannot hold a number of extended precision.
    """
    if values.dtype.kind != "f":
        return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    bad = inexact(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        reason = f"{values[row, column]!r} is not exactly a float64"
        raise refuse_cell(rows[row], column, reason)
    return np.ascontiguousarray(values, dtype=np.float64)


def _frame_blocks(X: Any) -> Iterator[Block]:
    width = frame_width(X)
    kinds = set(X.dtypes) if is_pandas(X) and width is not None else set()
    uniform = len(kinds) == 1 and all(isinstance(t, np.dtype) and t.kind in "biuf" for t in kinds)
    step = max(FRAME_ROWS, CELLS_PER_BLOCK // (width or 1))
    for start in range(0, n_rows(X), step):
        part = frame_slice(X, start, start + step)
        rows = np.arange(start, start + len(part))
        if uniform:
            yield _block(rows, part.to_numpy(), None)
        else:
            yield CellBlock(rows, frame_columns(part))


def _sparse_blocks(X: sp.csr_array) -> Iterator[Block]:
    n, width = X.shape
    step = max(1, CELLS_PER_BLOCK // max(1, X.nnz // max(1, n)))
    for start in range(0, n, step):
        stop = min(n, start + step)
        first, last = X.indptr[start], X.indptr[stop]
        arrays = (X.data[first:last], X.indices[first:last], X.indptr[start : stop + 1] - first)
        part = sp.csr_array(arrays, shape=(stop - start, width))
        yield SparseBlock(np.arange(start, stop), plain_csr(part, start))


def canonical_csr(matrix: sp.csr_array) -> sp.csr_array:
    """Return the same values with sorted indices, no duplicates and no stored zeros.

    The argument is not changed; it is returned if nothing needs to be done.
    """
    stored_zeros = bool((matrix.data == 0).any())
    if stored_zeros or not matrix.has_canonical_format:
        matrix = exact_sums(matrix).copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def plain_csr(matrix: sp.csr_array, first_row: int = 0) -> sp.csr_array:
    """Return a canonical CSR matrix of integers or float64.

    Raises
    ------
    InvalidRowsError
        If the dtype holds no real numbers, or float64 cannot hold one of extended precision.
    """
    if matrix.dtype.kind not in "biuf":
        raise InvalidRowsError(f"The sparse matrix has dtype {matrix.dtype}. {DTYPES}")
    matrix = canonical_csr(matrix)
    if matrix.dtype.kind != "f":
        return matrix
    bad = inexact(matrix.data)
    if bad.any():
        first = int(bad.argmax())
        row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        reason = f"{matrix.data[first]!r} is not exactly a float64"
        raise refuse_cell(first_row + row, matrix.indices[first], reason)
    return matrix.astype(np.float64, copy=False)
