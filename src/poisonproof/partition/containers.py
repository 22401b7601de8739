"""Containers of samples: arrays, sparse matrices, frames and lists of rows.

A frame is recognised only where its library is already imported, so neither pandas nor Polars is a
dependency. Column names are not read: a cell is known by its position.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError, needing

CONTAINERS = (
    "Allowed are NumPy arrays, SciPy sparse matrices, pandas and Polars frames and series, "
    "and lists of rows."
)
DTYPES = "Allowed are booleans, integers, real numbers, text, bytes, dates and objects."


def as_container(X: Any) -> Any:
    """Return `X` as an array, a CSR matrix, a pandas frame or series, or a list of rows.

    Nothing is copied, except that a sparse matrix of another format becomes CSR and a frame of
    Polars one of pandas. A one-dimensional array of objects becomes a list: each object is a row.
    """
    if isinstance(X, list) or is_pandas(X):
        return X
    if is_sparse(X):
        if X.ndim != 2:
            raise InvalidRowsError(f"A sparse X needs two dimensions, but it has {X.ndim}.")
        # Converting may add up entries that stand in one place.
        return X if X.format == "csr" else exact_sums(X).tocsr()
    if is_polars(X):
        return as_pandas(X)
    if isinstance(X, tuple):
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
    if X.dtype.kind not in "biufOUSM":
        raise InvalidRowsError(f"X has dtype {X.dtype}. {DTYPES}")
    return list(X) if X.dtype.kind == "O" and X.ndim == 1 else X


def from_tensor(values: Any) -> Any:
    """Return a tensor of torch as an array of the same values, anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def n_rows(X: Any) -> int:
    """Return the number of samples in `X`.

    Examples
    --------
    >>> n_rows(np.zeros((3, 28, 28)))
    3
    """
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return rows of a container that `as_container` returned, in the same kind of container."""
    if isinstance(X, list):
        return [X[row] for row in rows]
    return X.iloc[rows] if is_pandas(X) else X[rows]


def is_pandas(X: Any) -> bool:
    """Return whether `X` is a pandas DataFrame or Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(X, (pandas.DataFrame, pandas.Series))


def is_polars(X: Any) -> bool:
    """Return whether `X` is a Polars DataFrame or Series."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, (polars.DataFrame, polars.Series))


def is_frame(X: Any) -> bool:
    """Return whether `X` is a frame or a series of pandas or Polars."""
    return is_pandas(X) or is_polars(X)


def is_sparse(X: Any) -> bool:
    """Return whether `X` is a SciPy sparse matrix or array."""
    return bool(sp.issparse(X))


def kind_of(X: Any) -> str:
    """Return the kind of container that a learner gets: ``sparse``, ``frame`` or ``array``.

    Rows have the same values and partitions in each, but a learner may round differently. The same
    is true of arrays of numbers whose rows have another shape, so these name it.
    """
    if is_sparse(X):
        return "sparse"
    if isinstance(X, np.ndarray) and X.ndim != 2 and X.dtype.kind in "biuf":
        return f"array of {X.shape[1:]}"
    return "frame" if is_frame(X) else "array"


def as_objects(X: Any) -> NDArray[np.object_]:
    """Return an array of objects; dates stay dates, where NumPy would make integers of some."""
    array = np.asarray(X)
    cells = np.fromiter(array.reshape(-1), dtype=object, count=array.size)
    return cells.reshape(array.shape)


def exact_sums(matrix: Any) -> Any:
    """Return a sparse matrix in a type that adds duplicate entries exactly.

    In a narrow type a sum could overflow or round, and the type depends on all rows.
    """
    if matrix.dtype.itemsize > 8 and matrix.dtype.kind == "f":
        raise InvalidRowsError(
            f"Entries of a sparse matrix of {matrix.dtype} that is not canonical CSR cannot be "
            "added up exactly. Convert it to float64 first."
        )
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}.get(matrix.dtype.kind)
    return matrix if wide is None or matrix.dtype.itemsize >= 8 else matrix.astype(wide)


# Frames.


def pandas() -> Any:
    """Return the module pandas, or say how to install it."""
    with needing("pandas", "data"):
        import pandas as pd
    return pd


def as_pandas(X: Any) -> Any:
    """Return a frame or a series of Polars as one of pandas that holds the same cells."""
    with needing("pyarrow", "data"):
        frame = X.to_pandas(use_pyarrow_extension_array=True)
    found = enum_categories(X)
    declared = {name: pandas().CategoricalDtype(values) for name, values in found.items()}
    return frame.astype(declared) if declared else frame


def enum_categories(X: Any) -> dict[str, list[str]]:
    """Return the categories that columns of a Polars frame declare, by name.

    An Enum declares them. Those of a Categorical are taken from the rows.
    """
    kinds = getattr(X, "schema", {}).items() if is_polars(X) else ()
    return {n: kind.categories.to_list() for n, kind in kinds if type(kind).__name__ == "Enum"}


def frame_columns(X: Any) -> list[NDArray[Any]]:
    """Return the columns of a pandas frame, or the one column of a series, without rounding."""
    series = [X] if X.ndim == 1 else [X.iloc[:, j] for j in range(X.shape[1])]
    return [_pandas_column(column) for column in series]


def _pandas_column(series: Any) -> NDArray[Any]:
    dtype, pd = series.dtype, pandas()
    if isinstance(dtype, np.dtype):
        return np.asarray(series.to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        # The last entry stands for code -1, a missing cell.
        values = np.empty(len(dtype.categories) + 1, dtype=object)
        values[:-1] = dtype.categories.astype(object)
        return np.asarray(values[series.cat.codes.to_numpy()])
    plain = getattr(dtype, "numpy_dtype", None)
    if getattr(dtype, "kind", "O") not in "biuf" or plain is None or plain.kind == "O":
        return np.asarray(series.to_numpy(dtype=object))
    missing = series.isna().to_numpy(dtype=bool)
    if not missing.any():
        return np.asarray(series.to_numpy(dtype=plain))
    values = series.to_numpy(dtype=plain, na_value=plain.type(0))
    values = values.astype(object if inexact(values).any() else np.float64)
    values[missing] = np.nan
    return np.asarray(values)


def inexact(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where float64 would round an array of numbers."""
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


# Rows of a list, each read alone.
#
# A row that is an array of two or more dimensions is an image and carries its shape; all other rows
# are their cells in order. A rule that looked at all rows (say, "the shapes differ") would let one
# inserted row re-encode the others.


def row_array(sample: Any, row: int) -> NDArray[Any]:
    """Return one row of a list as an array of at least one dimension."""
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
        return np.fromiter(sample, dtype=object, count=len(sample))
    if is_sparse(sample) or is_frame(sample):
        raise InvalidRowsError(
            f"Row {row} is a {type(sample).__name__}. Stack such rows into one matrix or frame."
        )
    array_like = hasattr(sample, "__array__") and hasattr(sample, "ndim")
    if array_like and not isinstance(sample, np.generic):
        array = np.asarray(sample)
        if array.dtype.kind not in "biufOUSM" or isinstance(sample, np.ma.MaskedArray):
            raise InvalidRowsError(f"Row {row} has dtype {array.dtype}. {DTYPES}")
        if array.ndim:
            return array
        sample = array[()]
    return np.fromiter([sample], dtype=object, count=1)


# Stacking.


def stacked(parts: Sequence[Any]) -> Any:
    """Stack samples that come in the same kind of container; every cell keeps its value."""
    if len(parts) == 1:
        return parts[0]
    parts = [as_pandas(part) if is_polars(part) else part for part in parts]
    frames, matrices = ([test(part) for part in parts] for test in (is_pandas, is_sparse))
    if any(frames) != all(frames) or any(matrices) != all(matrices):
        raise InvalidRowsError(
            "rows of tables, sparse matrices and arrays cannot be stored together; give all rows "
            "of a model in one kind of container."
        )
    if all(matrices):
        return sp.vstack(list(parts), format="csr")  # an update compares digests afterwards
    if all(frames):
        return _stacked_frames(parts)
    if any(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    arrays = [np.asarray(part) for part in parts]
    types = {array.dtype for array in arrays}
    if len(types) > 1 and not joins_exactly(types):
        arrays = [as_objects(array) for array in arrays]
    return np.concatenate(arrays)


def joins_exactly(types: set[Any]) -> bool:
    """Return whether these are types of NumPy's numbers, and their common type holds all values."""
    if not types or not all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in types):
        return False
    wide = any(kind.kind in "iu" and kind.itemsize == 8 for kind in types)
    return not (wide and np.result_type(*types) == np.float64)


def _stacked_frames(frames: Sequence[Any]) -> Any:
    """Join by position, as rows are read; columns that come in several types become objects."""
    if frames[0].ndim == 1:
        if len({frame.dtype for frame in frames}) > 1:
            frames = [frame.astype(object) for frame in frames]
        return pandas().concat(frames, ignore_index=True)
    kinds = zip(*(frame.dtypes for frame in frames), strict=True)
    mixed = {place: object for place, kind in enumerate(kinds) if len(set(kind)) > 1}
    numbered = [frame.set_axis(range(frame.shape[1]), axis=1).astype(mixed) for frame in frames]
    return pandas().concat(numbered, ignore_index=True).set_axis(frames[0].columns, axis=1)
