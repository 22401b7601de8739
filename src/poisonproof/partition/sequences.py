"""Sequences of samples: lists of lists, of texts, or of images of different sizes.

Every row is read alone. A row that is an array of two or more dimensions is an image and
carries its shape; all other rows are their cells in order. A rule that looked at all rows (say,
"the shapes differ") would let one inserted row re-encode the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.containers import DTYPES
from poisonproof.partition.frames import is_frame

__all__ = ["Window", "row_array", "sequence_windows"]

Window: TypeAlias = tuple[NDArray[np.intp], NDArray[Any], tuple[int, ...] | None]


def sequence_windows(X: Sequence[Any], cells: int) -> Iterator[Window]:
    """Yield rows of a sequence as rectangles, those of one size and dtype together.

    Parameters
    ----------
    X : sequence of n samples
        Scalars, lists (nested ones are flattened) or arrays.
    cells : int
        How many cells to gather before yielding them.

    Yields
    ------
    rows : ndarray of shape (m,)
        Row numbers.
    values : ndarray of shape (m, d)
        Their cells.
    shape : tuple of int, or None
        The shape of each row, if they are images.
    """
    waiting: dict[Hashable, list[tuple[int, NDArray[Any]]]] = defaultdict(list)
    gathered = 0
    for row, sample in enumerate(X):
        array = row_array(sample, row)
        waiting[array.dtype, array.shape].append((row, array))
        gathered += array.size + 1
        if gathered > cells:
            yield from map(_rectangle, waiting.values())
            waiting.clear()
            gathered = 0
    yield from map(_rectangle, waiting.values())


def _rectangle(group: list[tuple[int, NDArray[Any]]]) -> Window:
    rows = np.array([row for row, _ in group], dtype=np.intp)
    values = np.stack([array for _, array in group])
    shape = values.shape[1:] if values.ndim > 2 else None
    return rows, values.reshape(len(rows), int(np.prod(values.shape[1:]))), shape


def row_array(sample: Any, row: int) -> NDArray[Any]:
    """Return one row of a sequence as an array of at least one dimension.

    Lists become arrays of objects, so that whole and broken numbers do not round each other.
    """
    try:
        return _row_array(sample, row)
    except InvalidRowsError:
        raise
    except Exception as error:  # an object of the caller's: its methods may raise anything
        raise InvalidRowsError(
            f"Row {row} is a {type(sample).__name__} that raises {type(error).__name__} when it is "
            "read. Give a list or an array of cells."
        ) from None


def _row_array(sample: Any, row: int) -> NDArray[Any]:
    if isinstance(sample, (list, tuple)):
        flat = list(_flatten(sample))
        return np.fromiter(flat, dtype=object, count=len(flat))
    if sp.issparse(sample) or is_frame(sample):
        raise InvalidRowsError(
            f"Row {row} is a {type(sample).__name__}. Stack such rows into one matrix or frame."
        )
    array_like = hasattr(sample, "__array__") and hasattr(sample, "ndim")
    if array_like and not isinstance(sample, np.generic):
        array = np.asarray(sample)
        if array.dtype.kind not in "biufOUSMm" or isinstance(sample, np.ma.MaskedArray):
            raise InvalidRowsError(f"Row {row} has dtype {array.dtype}. {DTYPES}")
        if array.ndim:
            return array
        sample = array[()]
    return np.fromiter([sample], dtype=object, count=1)


def _flatten(cells: Sequence[Any]) -> Iterator[Any]:
    for cell in cells:
        if isinstance(cell, (list, tuple)):
            yield from _flatten(cell)
        elif isinstance(cell, np.ndarray) and cell.ndim:
            yield from cell.reshape(-1)
        else:
            yield cell
