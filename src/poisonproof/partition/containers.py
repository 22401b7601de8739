"""Columns of pandas and Polars frames, without the rounding that their own conversions do.

A frame is recognised only where its library is already imported, so neither is a dependency.
Column names are not read: a cell is known by its position.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError

NUMPY_NUMBERS = frozenset(
    {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
    | {"Float16", "Float32", "Float64"}
)
"""The Polars types that NumPy has too; the others come as Python objects."""


class Column(NamedTuple):
    """The cells of one column as NumPy holds them best.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Numbers, dates, strings or Python objects.
    missing : ndarray of bool of shape (m,), or None
        Cells whose entry in `values` is only a placeholder; None where there are none.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None


def is_pandas(X: Any) -> bool:
    """Whether `X` is a pandas DataFrame or Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, (pandas.DataFrame, pandas.Series))


def is_polars(X: Any) -> bool:
    """Whether `X` is a Polars DataFrame or Series."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, (polars.DataFrame, polars.Series))


def is_frame(X: Any) -> bool:
    """Whether `X` is a frame or a series of pandas or Polars."""
    return is_pandas(X) or is_polars(X)


def frame_slice(X: Any, start: int, stop: int) -> Any:
    """Return the rows ``start:stop`` of a frame or a series."""
    return X.iloc[start:stop] if is_pandas(X) else X[start:stop]


def frame_width(X: Any) -> int | None:
    """Return the number of columns, or None for a series."""
    return int(X.shape[1]) if len(X.shape) == 2 else None


def frame_columns(X: Any) -> list[Column]:
    """Return the columns of a frame, or the one column of a series.

    Examples
    --------
    >>> import pandas as pd
    >>> frame_columns(pd.DataFrame({"a": pd.array([2**60 + 1, None], dtype="Int64")}))
    [Column(values=array([1152921504606846977, 0]), missing=array([False,  True]))]
    """
    if is_pandas(X):
        series = [X] if X.ndim == 1 else [X.iloc[:, j] for j in range(X.shape[1])]
        return [_pandas_column(column) for column in series]
    series = X.get_columns() if hasattr(X, "get_columns") else [X]
    return [_polars_column(column) for column in series]


def _pandas_column(series: Any) -> Column:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return Column(series.to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        # The last entry stands for code -1, a missing cell.
        values = np.empty(len(dtype.categories) + 1, dtype=object)
        values[:-1] = dtype.categories.astype(object)
        return Column(values[series.cat.codes.to_numpy()])
    if isinstance(dtype, pd.DatetimeTZDtype):
        return Column(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, pd.SparseDtype):
        return Column(np.asarray(series))
    plain = getattr(dtype, "numpy_dtype", None)
    if getattr(dtype, "kind", "O") in "biuf" and isinstance(plain, np.dtype) and plain.kind != "O":
        missing = series.isna().to_numpy(dtype=bool)
        if not missing.any():
            return Column(series.to_numpy(dtype=plain))
        return Column(series.to_numpy(dtype=plain, na_value=plain.type(0)), missing)
    return Column(series.to_numpy(dtype=object))


def _polars_column(series: Any) -> Column:
    import polars as pl

    dtype = series.dtype
    nulls = series.is_null().to_numpy() if series.null_count() else None
    if dtype == pl.Date:
        return Column(_counts(series).astype("M8[D]"), nulls)
    if isinstance(dtype, (pl.Datetime, pl.Duration)):
        kind = "M8" if isinstance(dtype, pl.Datetime) else "m8"
        return Column(_counts(series).view(f"{kind}[{dtype.time_unit}]"), nulls)
    if dtype == pl.Boolean:
        return Column(series.fill_null(False).to_numpy(), nulls)
    if str(dtype) in NUMPY_NUMBERS:
        return Column(series.fill_null(0).to_numpy(), nulls)
    return Column(np.fromiter(series.to_list(), dtype=object, count=len(series)))


def _counts(series: Any) -> NDArray[np.int64]:
    """Return the integers behind a Polars date; they count from 1970 in UTC."""
    counts: NDArray[np.int64] = series.to_physical().fill_null(0).to_numpy().astype(np.int64)
    return counts


# Which containers of samples are understood, and how many rows they have.

CONTAINERS = (
    "Allowed are NumPy arrays, SciPy sparse matrices, pandas and Polars frames and series, "
    "and lists of rows."
)
DTYPES = "Allowed are booleans, integers, real numbers, text, bytes, dates, durations and objects."


def n_rows(X: Any) -> int:
    """Return the number of samples in `X`.

    Examples
    --------
    >>> n_rows(np.zeros((3, 28, 28)))
    3
    """
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def is_sparse(X: Any) -> bool:
    """Whether `X` is a SciPy sparse matrix or array."""
    return bool(sp.issparse(X))


def as_objects(X: Any) -> NDArray[np.object_]:
    """Return an array of objects; dates stay dates, where NumPy would make integers of some.

    >>> type(as_objects(np.array(["2024-05-01"], dtype="M8[ns]"))[0]).__name__
    'datetime64'
    """
    array = np.asarray(X)
    cells = np.fromiter(array.reshape(-1), dtype=object, count=array.size)
    return cells.reshape(array.shape)


def kind_of(X: Any) -> str:
    """Return which kind of container a learner is handed: ``sparse``, ``frame`` or ``array``.

    Rows have the same values and partitions in each, but a learner may round differently. The same
    is true of arrays of numbers whose rows have another shape, so these name it.

    >>> kind_of(np.zeros((2, 2))), kind_of(["a text"]), kind_of(sp.csr_array((2, 2)))
    ('array', 'array', 'sparse')
    >>> kind_of(np.zeros((5, 2, 2)))
    'array of (2, 2)'
    """
    if is_sparse(X):
        return "sparse"
    if isinstance(X, np.ndarray) and X.ndim != 2 and X.dtype.kind in "biuf":
        return f"array of {X.shape[1:]}"
    return "frame" if is_frame(X) else "array"


def take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return rows of a container that `as_container` returned, in the same kind of container."""
    if isinstance(X, list):
        return [X[row] for row in rows]
    return X.iloc[rows] if is_pandas(X) else X[rows]


def exact_sums(matrix: Any) -> Any:
    """Return a sparse matrix in a type in which entries of one place add up by their values.

    In a narrow type a sum could overflow or round, and the type is the work of all rows.

    Examples
    --------
    >>> twice = sp.coo_array(([200, 100], ([0, 0], [1, 1])), shape=(1, 2), dtype=np.uint8)
    >>> exact_sums(twice).tocsr().toarray()
    array([[  0, 300]], dtype=uint64)
    """
    if matrix.dtype.itemsize > 8 and matrix.dtype.kind == "f":
        raise InvalidRowsError(
            f"A sparse matrix of {matrix.dtype} that is not canonical CSR cannot be added up by "
            "its values. Convert it to float64 first."
        )
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}.get(matrix.dtype.kind)
    return matrix if wide is None or matrix.dtype.itemsize >= 8 else matrix.astype(wide)


def as_container(X: Any) -> Any:
    """Return `X` as an array, a CSR matrix, a frame or a list of rows.

    Nothing is copied, except that a sparse matrix of another format becomes CSR. A
    one-dimensional array of objects becomes a list: each object is a row.

    Raises
    ------
    InvalidRowsError
        If `X` is none of these, or its dtype can hold no sample.

    Examples
    --------
    >>> as_container(("one text", "another"))
    ['one text', 'another']
    """
    if is_sparse(X):
        if X.ndim != 2:
            raise InvalidRowsError(f"A sparse X needs two dimensions, but it has {X.ndim}.")
        # Converting may add up entries that stand in one place.
        return X if X.format == "csr" else exact_sums(X).tocsr()
    if is_frame(X):
        return X
    if isinstance(X, (list, tuple)):
        return list(X)
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidRowsError(
            "X is a masked array. Write the missing values as NaN: X.astype(float).filled(nan)."
        )
    if not isinstance(X, np.ndarray):
        # Tensors and other arrays. A table that only pretends to be one may round its columns.
        if not (hasattr(X, "__array__") and hasattr(X, "dtype") and hasattr(X, "shape")):
            raise InvalidRowsError(f"X is a {type(X).__name__}. {CONTAINERS}")
        X = np.asarray(X)
    if X.ndim == 0:
        raise InvalidRowsError(f"X has no rows: it is the single value {X!r}. {CONTAINERS}")
    if X.dtype.kind not in "biufOUSMm":
        raise InvalidRowsError(f"X has dtype {X.dtype}. {DTYPES}")
    return list(X) if X.dtype.kind == "O" and X.ndim == 1 else X


# Sequences of samples: lists of lists, of texts, or of images of different sizes.
#
# Every row is read alone. A row that is an array of two or more dimensions is an image and
# carries its shape; all other rows are their cells in order. A rule that looked at all rows (say,
# "the shapes differ") would let one inserted row re-encode the others.

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
