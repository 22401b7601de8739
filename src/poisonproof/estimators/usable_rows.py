"""Which rows the members can take; looked at cell by cell, so that no row decides for another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import get_tags

from poisonproof.estimators.validation import is_table
from poisonproof.features.base import FrozenTransformer
from poisonproof.features.pipeline import FrozenPipeline
from poisonproof.partition.columns import CanonicalColumn, canonical_column
from poisonproof.partition.frames import Column, frame_columns
from poisonproof.partition.values import nearest_float

__all__ = ["unusable", "usable_rows"]


def usable_rows(classifier: Any, X: Any) -> NDArray[np.bool_]:
    """Return which rows can be used: no infinity, and no NaN unless the members allow it.

    In front of a map of this library a row must hold what the map takes, numbers or a text. What
    other cells mean is the member's own business.
    """
    tags = get_tags(classifier).input_tags
    own_map = _first_map(classifier)
    if own_map is not None and tags.string:
        return _texts(X)
    numbers_only = own_map is not None or _compares_numbers(classifier)
    if is_table(X):
        return _usable_cells(frame_columns(X), len(X), tags.allow_nan, numbers_only)
    if sparse.issparse(X):
        return _finite_sparse_rows(X, tags.allow_nan)
    values = np.asarray(X)
    if values.dtype.kind == "O" and values.ndim >= 2:
        cells = map(Column, values.reshape(len(values), math.prod(values.shape[1:])).T)
        return _usable_cells(cells, len(values), tags.allow_nan, numbers_only)
    if _surely_finite(values):
        return np.ones(len(values), dtype=np.bool_)
    bad = np.isinf(values) if tags.allow_nan else ~np.isfinite(values)
    rows: NDArray[np.bool_] = ~bad.reshape(len(values), -1).any(axis=1)
    return rows


def unusable(classifier: Any) -> str:
    """Return in words what a row that is not usable contains."""
    tags = get_tags(classifier).input_tags
    own_map = _first_map(classifier)
    if own_map is not None and tags.string:
        return "something that is no text"
    what = "infinity" if tags.allow_nan else "NaN or infinity"
    numbers_only = own_map is not None or _compares_numbers(classifier)
    return f"{what}, or something that is no number," if numbers_only else what


def _compares_numbers(classifier: Any) -> bool:
    """Say whether the classifier itself compares rows, and as they are."""
    return getattr(classifier, "numbers_only", False) and classifier.features is None


def _first_map(classifier: Any) -> FrozenTransformer | None:
    """Return the map of this library that sees the samples first, if one does."""
    first = getattr(classifier, "features", None)
    while isinstance(first, FrozenPipeline):
        first = first.steps[0][1]
    return first if isinstance(first, FrozenTransformer) else None


def _texts(X: Any) -> NDArray[np.bool_]:
    cells = (X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)).reshape(len(X), -1)
    return np.fromiter(
        (all(isinstance(cell, str) for cell in row) for row in cells), np.bool_, len(cells)
    )


def _usable_cells(
    columns: Iterable[Column], n_rows: int, allow_nan: bool, numbers_only: bool
) -> NDArray[np.bool_]:
    """Look at every cell by its value: the dtype of a column is the work of all its rows."""
    good = np.ones(n_rows, dtype=np.bool_)
    rows = np.arange(n_rows)
    for position, column in enumerate(columns):
        canonical = canonical_column(column, rows, position)
        bad = np.isinf(canonical.floats) if allow_nan else ~np.isfinite(canonical.floats)
        good &= ~np.where(canonical.odd, _strange(canonical, numbers_only), bad)
    return good


def _strange(column: CanonicalColumn, numbers_only: bool) -> NDArray[np.bool_]:
    """Return which cells that float64 does not hold exactly make a row unusable.

    Numbers that round to infinity do. Smaller integers are numbers as in an array of integers,
    whatever another row makes of its dtype.
    """
    found = np.zeros(len(column.odd), dtype=np.bool_)
    for row in np.flatnonzero(column.odd):
        cell = column.cell(row)
        infinite = isinstance(cell, (int, Fraction)) and math.isinf(nearest_float(cell))
        found[row] = infinite or (numbers_only and not isinstance(cell, int))
    return found


def _surely_finite(values: NDArray[Any]) -> bool:
    """Look once, without a mask: a sum is finite unless a value is not, or the sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)))


def _finite_sparse_rows(X: Any, allow_nan: bool) -> NDArray[np.bool_]:
    good = np.ones(X.shape[0], dtype=np.bool_)
    if not _surely_finite(X.data):
        matrix = X.tocsr()
        bad = np.isinf(matrix.data) if allow_nan else ~np.isfinite(matrix.data)
        good[np.repeat(np.arange(X.shape[0]), np.diff(matrix.indptr))[bad]] = False
    return good
