"""A column of any kind, split into what float64 holds exactly and what it does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.cells import (
    Cell,
    NoCanonicalFormError,
    canonical_cell,
    is_exact_float,
    time_cells,
)
from poisonproof.partition.frames import Column

__all__ = ["ALLOWED", "CanonicalColumn", "canonical_column", "inexact", "refuse_cell"]

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
