"""Columns of pandas and Polars frames, without the rounding that their own conversions do.

A frame is recognised only where its library is already imported, so neither is a dependency.
Column names are not read: a cell is known by its position.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Column",
    "frame_columns",
    "frame_slice",
    "frame_width",
    "is_frame",
    "is_pandas",
    "is_polars",
]

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
