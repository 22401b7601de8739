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
from poisonproof.learners.parameters import largest_value
from poisonproof.partition.columns import CanonicalColumn, canonical_column
from poisonproof.partition.frames import Column, frame_columns
from poisonproof.partition.values import nearest_float

__all__ = ["training_limit", "unusable", "usable_rows"]


def usable_rows(classifier: Any, X: Any, *, limit: float = math.inf) -> NDArray[np.bool_]:
    """Return which rows can be used: no infinity, and no NaN unless the members allow it.

    Nor may a number be larger than `limit`; for training `training_limit` returns one. In front of
    a map of this library a row must hold what the map takes, numbers or a text. What other cells
    mean is the member's own business.
    """
    tags = get_tags(classifier).input_tags
    own_map = _first_map(classifier)
    if own_map is not None and tags.string:
        return _texts(X)
    numbers_only = own_map is not None or _compares_numbers(classifier)
    if is_table(X):
        return _usable_cells(frame_columns(X), len(X), tags.allow_nan, numbers_only, limit)
    if sparse.issparse(X):
        return _finite_sparse_rows(X, tags.allow_nan, limit)
    values = np.asarray(X)
    if values.dtype.kind == "O" and values.ndim >= 2:
        cells = map(Column, values.reshape(len(values), math.prod(values.shape[1:])).T)
        return _usable_cells(cells, len(values), tags.allow_nan, numbers_only, limit)
    if _surely_finite(values) and limit == math.inf:
        return np.ones(len(values), dtype=np.bool_)
    bad = _bad(values, tags.allow_nan, limit).reshape(len(values), -1)
    rows: NDArray[np.bool_] = ~np.any(bad, axis=1)
    return rows


def training_limit(classifier: Any) -> float:
    """Return how large a number in a training row may be for the members to come to an end."""
    template = getattr(classifier, "_template", None)
    return math.inf if template is None else largest_value(template())


def _bad(values: NDArray[Any], allow_nan: bool, limit: float) -> NDArray[np.bool_]:
    bad: NDArray[np.bool_] = np.asarray(np.isinf(values) if allow_nan else ~np.isfinite(values))
    if limit < math.inf:
        bad |= (values > limit) | (values < -limit)
    return bad


def unusable(classifier: Any, limit: float = math.inf) -> str:
    """Return in words what a row that is not usable contains."""
    tags = get_tags(classifier).input_tags
    own_map = _first_map(classifier)
    if own_map is not None and tags.string:
        return "something that is no text"
    what = "infinity" if tags.allow_nan else "NaN or infinity"
    if limit < math.inf:
        what = f"{what}, or a number beyond {limit:g} that could keep training from ending,"
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
    columns: Iterable[Column], n_rows: int, allow_nan: bool, numbers_only: bool, limit: float
) -> NDArray[np.bool_]:
    """Look at every cell by its value: the dtype of a column is the work of all its rows."""
    good = np.ones(n_rows, dtype=np.bool_)
    rows = np.arange(n_rows)
    for position, column in enumerate(columns):
        canonical = canonical_column(column, rows, position)
        bad = _bad(canonical.floats, allow_nan, limit)
        good &= ~np.where(canonical.odd, _strange(canonical, numbers_only, limit), bad)
    return good


def _strange(column: CanonicalColumn, numbers_only: bool, limit: float) -> NDArray[np.bool_]:
    """Return which cells that float64 does not hold exactly make a row unusable.

    Numbers that round to infinity do, and whatever a learner could read as a number beyond the
    limit, texts too. Smaller integers are numbers as in an array of integers, whatever another row
    makes of its dtype.
    """
    found = np.zeros(len(column.odd), dtype=np.bool_)
    for row in np.flatnonzero(column.odd):
        cell: Any = column.cell(row)
        if isinstance(cell, (int, Fraction)):
            number = abs(nearest_float(cell))
        else:
            number = _as_number(cell) if limit < math.inf else 0.0
        beyond = math.isinf(number) or number > limit
        found[row] = beyond or (numbers_only and not isinstance(cell, int))
    return found


def _as_number(cell: Any) -> float:
    """Return what a learner could read a text as, 0 if that is no number."""
    try:
        return abs(float(cell))
    except (TypeError, ValueError):
        return 0.0


def _surely_finite(values: NDArray[Any]) -> bool:
    """Look once, without a mask: a sum is finite unless a value is not, or the sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)))


def _finite_sparse_rows(X: Any, allow_nan: bool, limit: float) -> NDArray[np.bool_]:
    good = np.ones(X.shape[0], dtype=np.bool_)
    if limit < math.inf or not _surely_finite(X.data):
        matrix = X.tocsr()
        bad = _bad(matrix.data, allow_nan, limit)
        good[np.repeat(np.arange(X.shape[0]), np.diff(matrix.indptr))[bad]] = False
    return good
