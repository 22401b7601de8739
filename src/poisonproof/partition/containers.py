"""Which containers of samples are understood, and how many rows they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.frames import is_frame, is_pandas

__all__ = [
    "CONTAINERS",
    "DTYPES",
    "as_container",
    "as_objects",
    "exact_sums",
    "is_sparse",
    "kind_of",
    "n_rows",
    "take_rows",
]

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
