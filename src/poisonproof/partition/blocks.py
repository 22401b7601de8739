"""Samples of any container, read as blocks of rows in canonical cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

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
    exact_sums,
    frame_columns,
    inexact,
    is_pandas,
    is_sparse,
    joins_exactly,
    row_array,
)

ALLOWED = (
    "Allowed are real numbers, booleans, text, bytes, dates and missing values; convert the "
    "column first."
)
CELLS_PER_BLOCK = 2**19
"""A block of float64 takes 4 MiB: small beside the data, large beside Python's overhead."""

FRAME_ROWS = 4096
"""Slicing a frame costs per column, so its blocks have at least this many rows."""


class CanonicalColumn(NamedTuple):
    """The canonical cells of one column.

    `floats` are those that float64 holds exactly, NaN where a value is missing. `odd` marks the
    others (text, bytes, dates, integers that float64 would round), which are in `cells`, if any.
    """

    floats: NDArray[np.float64]
    odd: NDArray[np.bool_]
    cells: NDArray[np.object_] | None

    def taken(self, rows: NDArray[Any]) -> list[Cell]:
        """Return some canonical cells, by row number or by mask."""
        values: NDArray[Any] = self.floats[rows]
        if self.cells is not None:
            values = np.where(self.odd[rows], self.cells[rows], values)
        found: list[Cell] = values.tolist()
        return found


class Block(NamedTuple):
    """Some rows, by the caller's numbers; `shape` is that of each image out of a list of images.

    `values` are booleans, integers or float64 in C order (m, d), a CSR array without duplicates or
    stored zeros, or a list of d canonical columns.
    """

    rows: NDArray[np.intp]
    values: NDArray[Any] | sp.csr_array | list[CanonicalColumn]
    shape: tuple[int, ...] | None = None


def row_blocks(X: Any) -> Iterator[Block]:
    """Yield the samples of a container in blocks of bounded size, each row once."""
    if isinstance(X, list):
        yield from _list_blocks(X)
        return
    n = X.shape[0]
    width = int(np.prod(X.shape[1:]))
    if is_sparse(X):
        width = X.nnz // max(1, n)
    step = max(FRAME_ROWS if is_pandas(X) else 1, CELLS_PER_BLOCK // max(1, width))
    types = set(X.dtypes if X.ndim == 2 else [X.dtype]) if is_pandas(X) else set()
    common = np.result_type(*types) if joins_exactly(types) else None
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        if is_sparse(X):
            yield Block(rows, plain_csr(sp.csr_array(X[start : start + step]), start))
            continue
        part = X.iloc[start : start + step] if is_pandas(X) else X[start : start + step]
        if is_pandas(X) and common is None:
            columns = frame_columns(part)
            yield Block(rows, [canonical_column(c, rows, j) for j, c in enumerate(columns)])
        else:
            values = part.to_numpy(dtype=common) if is_pandas(X) else np.asarray(part)
            yield _block(rows, values.reshape(len(rows), width))


def _list_blocks(X: list[Any]) -> Iterator[Block]:
    """Yield rows of one size and dtype together."""
    waiting: dict[Hashable, list[tuple[int, NDArray[Any]]]] = defaultdict(list)
    gathered = 0
    for row, sample in enumerate(X):
        array = row_array(sample, row)
        waiting[array.dtype, array.shape].append((row, array))
        gathered += array.size + 1
        if gathered > CELLS_PER_BLOCK:
            yield from map(_rectangle, waiting.values())
            waiting.clear()
            gathered = 0
    yield from map(_rectangle, waiting.values())


def _rectangle(group: list[tuple[int, NDArray[Any]]]) -> Block:
    rows = np.array([row for row, _ in group], dtype=np.intp)
    values = np.stack([array for _, array in group])
    shape = values.shape[1:] if values.ndim > 2 else None
    return _block(rows, values.reshape(len(rows), int(np.prod(values.shape[1:]))), shape)


def _block(
    rows: NDArray[np.intp], values: NDArray[Any], shape: tuple[int, ...] | None = None
) -> Block:
    if values.dtype.kind in "biuf":
        return Block(rows, plain_numbers(values, rows), shape)
    return Block(rows, table_columns(values, rows), shape)


# Numbers.


def plain_numbers(values: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Return numbers in C order and native byte order, all that are not integers as float64."""
    if values.dtype.kind != "f":
        return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    if (bad := inexact(values)).any():
        row, column = np.argwhere(bad)[0]
        raise _rounded(rows[row], column, values[row, column])
    return np.ascontiguousarray(values, dtype=np.float64)


def plain_csr(matrix: sp.csr_array, first_row: int = 0) -> sp.csr_array:
    """Return a canonical CSR matrix of integers or float64, as `plain_numbers` does."""
    if matrix.dtype.kind not in "biuf":
        raise InvalidRowsError(f"The sparse matrix has dtype {matrix.dtype}. {DTYPES}")
    matrix = canonical_csr(matrix)
    if matrix.dtype.kind != "f":
        return matrix
    if (bad := inexact(matrix.data)).any():
        first = int(bad.argmax())
        row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        raise _rounded(first_row + row, matrix.indices[first], matrix.data[first])
    return matrix.astype(np.float64, copy=False)


def canonical_csr(matrix: sp.csr_array) -> sp.csr_array:
    """Return the same values with sorted indices, no duplicates and no stored zeros."""
    if (matrix.data == 0).any() or not matrix.has_canonical_format:
        matrix = exact_sums(matrix).copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


# Cells of any kind.


def table_columns(values: NDArray[Any], rows: NDArray[np.intp]) -> list[CanonicalColumn]:
    """Return the canonical columns of an array of shape (m, d)."""
    return [canonical_column(values[:, j], rows, j) for j in range(values.shape[1])]


def canonical_column(
    values: NDArray[Any], rows: NDArray[np.intp], position: int
) -> CanonicalColumn:
    """Return the canonical cells of a column of shape (m,)."""
    kind = values.dtype.kind
    if kind in "biuf":
        odd = inexact(values)
        if kind == "f" and odd.any():
            first = int(odd.argmax())
            raise _rounded(rows[first], position, values[first])
        exact = np.empty(len(values), dtype=object) if odd.any() else None
        if exact is not None:
            exact[odd] = values[odd].tolist()
        return CanonicalColumn(values.astype(np.float64), odd, exact)
    if kind not in "OUSM":
        raise InvalidRowsError(f"Column {position} has dtype {values.dtype}. {ALLOWED}")
    items: Iterable[Any] = values.tolist()
    if kind == "M":
        try:
            items = time_cells(values)
        except NoCanonicalFormError:
            items = values  # one by one, to name the row
    floats = np.full(len(values), np.nan)
    odd = np.zeros(len(values), dtype=bool)
    cells = np.empty(len(values), dtype=object)
    for i, item in enumerate(items):
        try:
            cell = canonical_cell(item)
        except NoCanonicalFormError as error:
            raise _refused(rows[i], position, error) from None
        if is_exact_float(cell):
            floats[i] = cell
        else:
            odd[i] = True
            cells[i] = cell
    return CanonicalColumn(floats, odd, cells if odd.any() else None)


def _refused(row: int, position: int, reason: object) -> InvalidRowsError:
    return InvalidRowsError(f"Row {row}, column {position}: {reason}. {ALLOWED}")


def _rounded(row: int, position: int, value: object) -> InvalidRowsError:
    return _refused(row, position, f"{value!r} is not exactly a float64")
