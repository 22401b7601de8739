"""The rows of one partition, in the values its member sees.

Whatever is decided here (a dtype, float or object) is decided from the rows taken and from
nothing else: an invalid cell elsewhere in a column cannot change the bits of this partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.blocks import (
    CanonicalColumn,
    canonical_column,
    canonical_csr,
    table_columns,
)
from poisonproof.partition.cells import Cell, Instant, is_number, nearest_float
from poisonproof.partition.containers import (
    as_container,
    frame_columns,
    is_pandas,
    is_sparse,
    pandas,
    row_array,
    take_rows,
)

Categories = Mapping[int, tuple[tuple[Cell, ...], bool]]
"""The declared categories of some columns, by position, and whether they are ordered."""

TIME_UNITS = {"ns": 10**9, "us": 10**6, "s": 1}
"""Units of the dates a member sees, the finest that holds them first."""


def normal_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return a copy as float64 with one zero and one NaN."""
    result = values.astype(np.float64)
    result += 0.0  # -0.0 + 0.0 is 0.0
    missing = np.isnan(result)
    if missing.any():
        result[missing] = np.nan
    return result


def take_canonical(X: Any, rows: NDArray[np.intp] | None = None) -> Any:
    """Gather rows of `X` in canonical values.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of n samples
        The samples, in any container that ``docs/canonical-form.md`` lists.
    rows : ndarray of shape (m,), optional
        Row numbers, in the order wanted; all rows by default.

    Returns
    -------
    ndarray, CSR matrix or pandas DataFrame of m samples
        Numbers are float64 with one zero and one NaN. Frames of either library come back as pandas
        DataFrames with the same column names and a fresh index; a column is float64 if all its
        cells here are numbers or missing, dates if they are dates or missing, else objects. Arrays
        of objects or text are float64 or objects, by all their cells here. A series or a list of
        scalars comes back as a one-dimensional array, images out of a sequence as an array of m
        arrays.

    Guarantee
    ---------
    Samples with equal digests come back with equal bits.

    Examples
    --------
    >>> take_canonical(np.array([[1, 2], [3, 4]], dtype=np.uint8), np.array([1]))
    array([[3., 4.]])
    """
    if type(X) is np.ndarray and X.dtype.kind in "biuf":  # the common case, kept short
        values = X if rows is None else X.take(rows, axis=0)
        if values.dtype.kind == "f":
            return np.ascontiguousarray(normal_floats(values))
        return values.astype(np.float64, order="C")
    X = as_container(X)
    if rows is not None:
        X = take_rows(X, rows)
    if isinstance(X, list):
        return _list(X)
    if is_sparse(X):
        return _sparse(X)
    if is_pandas(X):
        return _frame(X)
    return take_canonical(np.asarray(X)) if X.dtype.kind in "biuf" else _cells(X)


def declared_categories(X: Any) -> Categories:
    """Return the categories that the dtypes of a frame declare, in canonical values."""
    found = {}
    for j, dtype in enumerate(X.dtypes if is_pandas(X) and X.ndim == 2 else ()):
        if not isinstance(dtype, pandas().CategoricalDtype):
            continue
        values = dtype.categories.to_numpy(dtype=object)
        column = canonical_column(values, np.arange(len(values)), j)
        cells = tuple(column.taken(np.arange(len(values))))
        if not all(isinstance(c, str) or (isinstance(c, float) and np.isfinite(c)) for c in cells):
            raise InvalidInputError(
                f"Column {X.columns[j]!r} has categories that are neither text nor numbers that "
                "float64 holds. Convert them to text: "
                "column.cat.rename_categories(map(str, column.cat.categories))."
            )
        found[j] = (cells, bool(dtype.ordered))
    return found


def with_categories(X: Any, categories: Categories) -> Any:
    """Return a canonical frame with columns as categories; a cell that is none is missing."""
    if not categories:
        return X
    if not is_pandas(X) or X.ndim != 2:
        raise InvalidInputError(
            "The model was trained on a frame with categories. Give a frame with the same columns; "
            "its dtypes do not matter."
        )
    columns = {j: X.iloc[:, j] for j in range(X.shape[1])}
    for j, (values, ordered) in categories.items():
        code = {value: place for place, value in enumerate(values)}
        codes = np.array([code.get(cell, -1) for cell in columns[j].tolist()], dtype=np.intp)
        integers = [int(v) for v in values if isinstance(v, float) and v.is_integer()]
        index = pandas().Index(integers if len(integers) == len(values) else values)
        dtype = pandas().CategoricalDtype(index, ordered=ordered)
        columns[j] = pandas().Series(pandas().Categorical.from_codes(codes, dtype=dtype))
    frame = pandas().DataFrame(columns, index=pandas().RangeIndex(len(X)))
    frame.columns = X.columns
    return frame


def _sparse(matrix: Any) -> Any:
    """Return canonical CSR float64 of the caller's flavour, sparse matrix or sparse array."""
    # Entries of one place add up in their own type first, as they do for the digest.
    values = canonical_csr(matrix).astype(np.float64, copy=False)
    indices = np.int32 if max(values.shape[1], values.nnz) < 2**31 else np.int64
    arrays: Any = (
        normal_floats(values.data),
        values.indices.astype(indices),
        values.indptr.astype(indices),
    )
    kind = sp.csr_array if isinstance(matrix, sp.sparray) else sp.csr_matrix
    return kind(arrays, shape=values.shape)


def _frame(X: Any) -> Any:
    """Return a DataFrame, or an array for a series, whose cells are the samples."""
    if X.ndim == 2 and all(isinstance(t, np.dtype) and t.kind in "biuf" for t in X.dtypes):
        return _float_frame(normal_floats(X.to_numpy(dtype=np.float64)), X.columns)
    positions = np.arange(len(X))
    columns = [canonical_column(c, positions, j) for j, c in enumerate(frame_columns(X))]
    if X.ndim == 1:
        return _array(columns, (len(X),))
    if columns and not any(_has_text(column) for column in columns):
        return _float_frame(_array(columns, X.shape), X.columns)
    found = {j: _frame_column(column) for j, column in enumerate(columns)}
    frame = pandas().DataFrame(found, index=pandas().RangeIndex(len(X)))
    frame.columns = X.columns
    return frame


def _float_frame(values: NDArray[np.float64], names: Any) -> Any:
    """Return a frame around one C-ordered block, so that equal values have equal layouts."""
    return pandas().DataFrame(np.ascontiguousarray(values), columns=names, copy=False)


def _has_text(column: CanonicalColumn) -> bool:
    """Return whether some cell is neither a number nor missing."""
    return column.cells is not None and not all(map(is_number, column.cells[column.odd]))


def _values(column: CanonicalColumn, kind: type) -> NDArray[Any]:
    """Return a column as floats, those rounded that float64 cannot hold, or as Python objects."""
    result: NDArray[Any] = normal_floats(column.floats).astype(kind, copy=False)
    if column.cells is not None:
        result[column.odd] = [_plain(cell) for cell in column.cells[column.odd]]
    return result


def _frame_column(column: CanonicalColumn) -> Any:
    if not _has_text(column) or column.cells is None:
        return _values(column, float)
    present = column.odd | ~np.isnan(column.floats)
    if all(isinstance(cell, Instant) for cell in column.cells[present]):
        return _times(column.cells, present)
    return pandas().Series(_values(column, object), dtype=object)


def _times(cells: NDArray[np.object_], present: NDArray[np.bool_]) -> NDArray[Any]:
    """Return dates in the finest unit that holds them all."""
    for unit, per_second in TIME_UNITS.items():  # noqa: B007 - the last unit holds every date
        counts = [
            cell.seconds * per_second + cell.attoseconds * per_second // 10**18
            for cell in cells[present]
        ]
        if all(abs(count) < 2**63 for count in counts):
            break
    values = np.full(len(cells), np.iinfo(np.int64).min)  # the count that means NaT
    values[present] = counts
    return values.view(f"M8[{unit}]")


def _plain(cell: Cell) -> Any:
    if isinstance(cell, int):
        return nearest_float(cell)
    if isinstance(cell, Instant):
        return _times(np.array([cell], dtype=object), np.ones(1, dtype=bool))[0]
    return cell


def _list(rows: list[Any]) -> Any:
    """Return rows of cells as one array, and images as an array of arrays."""
    arrays = [row_array(row, i) for i, row in enumerate(rows)]
    if any(array.ndim > 1 for array in arrays):
        images = np.empty(len(arrays), dtype=object)
        for i, array in enumerate(arrays):
            images[i] = take_canonical(array)
        return images
    sizes = sorted({array.size for array in arrays})
    if len(sizes) > 1:
        raise InvalidRowsError(
            f"One partition holds rows of {sizes[0]} to {sizes[-1]} cells. "
            "Give all rows the same number of cells."
        )
    if arrays and all(array.dtype.kind in "biuf" for array in arrays):
        return take_canonical(np.stack(arrays))
    table = np.empty((len(arrays), sizes[0] if sizes else 0), dtype=object)
    for i, array in enumerate(arrays):
        table[i] = np.fromiter(array, dtype=object, count=array.size)  # keeps the unit of dates
    scalars = all(not isinstance(row, (list, tuple, np.ndarray)) for row in rows)
    return _cells(table.reshape(-1) if scalars else table)


def _cells(values: NDArray[Any]) -> NDArray[Any]:
    table = values.reshape(len(values), int(np.prod(values.shape[1:])))
    return _array(table_columns(table, np.arange(len(table))), values.shape)


def _array(columns: list[CanonicalColumn], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return float64 if all cells are numbers or missing, else objects."""
    kind = object if any(_has_text(column) for column in columns) else float
    result = np.empty((shape[0], len(columns)), dtype=kind)
    for j, column in enumerate(columns):
        result[:, j] = _values(column, kind)
    return result.reshape(shape)
