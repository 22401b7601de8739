"""Transformers that learn nothing, and how DPA tells them from those that do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs, parallel_config
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.values import normal_floats, take_canonical

_CHUNK = 256


class FrozenTransformer(TransformerMixin, BaseEstimator, ABC):
    """Base class of the maps in this package.

    A subclass implements `_map_chunk`. Rows are handed to it in chunks of one fixed size, the
    last one filled up with empty rows, so that no array shape depends on the data.

    Guarantee
    ---------
    `fit` learns nothing, and the features of a row are a function of that row and the
    constructor's parameters alone, bit for bit: neither the other rows, nor the place of the row
    among them, nor `n_jobs` can change them.
    """

    learns_nothing: ClassVar[bool] = True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters and learn nothing.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        FrozenTransformer
            This object.
        """
        self._check_parameters()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Map every row of `X` by itself.

        Parameters
        ----------
        X : array of shape (n, ...)
            Samples.

        Returns
        -------
        ndarray of shape (n, d), float32
            Features. Row j is a function of ``X[j]`` and the parameters alone.
        """
        self._check_parameters()
        rows = self._check_rows(X)
        starts = range(0, max(len(rows), 1), _CHUNK)
        workers = min(map_threads(getattr(self, "n_jobs", None)), len(starts))
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            first = self._mapped_chunk(rows, 0)
            mapped = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
            mapped[:_CHUNK] = first[: len(rows)]

            def fill(start: int) -> None:
                chunk = self._mapped_chunk(rows, start)
                mapped[start : start + _CHUNK] = chunk[: len(rows) - start]

            for _ in pool.map(fill, starts[1:]):
                pass
        return mapped

    def _mapped_chunk(self, rows: NDArray[Any], start: int) -> NDArray[np.float32]:
        chunk = rows[start : start + _CHUNK]
        if len(chunk) < _CHUNK:
            filled = np.zeros((_CHUNK, *rows.shape[1:]), dtype=rows.dtype)
            filled[: len(chunk)] = chunk
            chunk = filled
        # NaN and infinity stay within their row; the member that trains on it says so.
        with np.errstate(all="ignore"):
            return self._map_chunk(canonical_chunk(chunk))

    def _check_parameters(self) -> None:
        """Raise InvalidInputError for parameters that make no sense."""

    def _require_integers(self, **least: int) -> None:
        """Raise InvalidInputError unless each parameter is an integer of at least its bound."""
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < bound:
                raise InvalidInputError(
                    f"{name} must be an integer of at least {bound}, but is {value!r}."
                )

    @abstractmethod
    def _check_rows(self, X: Any) -> NDArray[Any]:
        """Return `X` as an array whose first axis counts rows."""

    @abstractmethod
    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Map a chunk of the fixed size, row by row."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


def map_threads(n_jobs: int | None) -> int:
    """Return the number of threads of a map; every row is mapped alone, so it only schedules.

    joblib returns 1 wherever unknown maps are limited to one worker.
    """
    with parallel_config(backend="threading"):
        return int(effective_n_jobs(n_jobs))


def as_numbers(X: Any) -> NDArray[Any]:
    """Return `X` as an array, of numbers if every cell is one, whatever the cells are held in."""
    rows = np.asarray(X)
    return take_canonical(rows) if rows.dtype.kind == "O" else rows


def canonical_chunk(chunk: NDArray[Any]) -> NDArray[Any]:
    """Return equal bits for equal numbers; short integers may stay, all maps convert them exactly.

    Long integers are rounded to float64 first, as they are where a fraction in another row has made
    objects of them: float32 at once could round them to another number.
    """
    if chunk.dtype.kind == "f":
        return normal_floats(chunk)
    return chunk.astype(np.float64) if chunk.dtype.kind in "iu" and chunk.itemsize == 8 else chunk


def learns_nothing(transformer: Any, *, stateless: bool = False) -> bool:
    """Return whether `transformer` says that no row can influence the map of another.

    Parameters
    ----------
    transformer : transformer, None or "passthrough"
        Its attribute ``learns_nothing`` decides; of a pipeline or union, those of all its steps.
    stateless : bool, default=False
        Whether scikit-learn's tag ``requires_fit=False`` is enough: `fit` learns nothing then,
        but rows that are mapped together may still influence each other.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from poisonproof.features import FixedScale
    >>> learns_nothing(FixedScale(scale=255.0)), learns_nothing(StandardScaler())
    (True, False)
    """
    if transformer is None or (
        isinstance(transformer, str) and transformer in ("passthrough", "drop")
    ):
        return True
    declared = getattr(transformer, "learns_nothing", None)
    if declared is not None:
        return bool(declared)
    if isinstance(transformer, (Pipeline, FeatureUnion)):
        union = isinstance(transformer, FeatureUnion)
        steps = transformer.transformer_list if union else transformer.steps
        return all(learns_nothing(step, stateless=stateless) for _, step in steps)
    return stateless and not get_tags(transformer).requires_fit


def is_own_map(features: Any) -> bool:
    """Return whether this library wrote the map: a row's bits are the same in every container."""
    if type(features) is Pipeline:
        return all(is_own_map(step) for _, step in features.steps)
    own = type(features).__module__.startswith("poisonproof.features.")
    return own and isinstance(features, FrozenTransformer)


class FixedScale(FrozenTransformer):
    """Subtract a constant and divide by another, declared and not learned.

    Parameters
    ----------
    shift : float or array of shape (d,), default=0.0
        What is subtracted, for all columns or for each.
    scale : float or array of shape (d,), default=1.0
        What is divided by; positive.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for a row is a function of that row alone, bit for bit.

    Examples
    --------
    >>> FixedScale(shift=10.0, scale=2.0).transform([[10.0, 14.0]])
    array([[0., 2.]], dtype=float32)
    """

    def __init__(
        self,
        *,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        n_jobs: int | None = None,
    ) -> None:
        self.shift = shift
        self.scale = scale
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        scale, shift = np.asarray(self.scale, np.float64), np.asarray(self.shift, np.float64)
        if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InvalidInputError(
                "shift must be finite and scale finite and positive, but shift="
                f"{self.shift!r} and scale={self.scale!r}."
            )

    def _check_rows(self, X: Any) -> NDArray[Any]:
        rows = as_numbers(X)
        if rows.ndim < 2 or rows.dtype.kind not in "buif":
            raise InvalidRowsError(
                "FixedScale takes numbers of shape (n, d), but X has shape "
                f"{rows.shape} and dtype {rows.dtype}."
            )
        for name in ("shift", "scale"):
            shape = np.shape(getattr(self, name))
            if shape and shape != rows.shape[1:]:
                raise InvalidRowsError(
                    f"{name} has shape {shape}, but the rows of X have shape {rows.shape[1:]}."
                )
        return rows

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        scaled = rows.astype(np.float64) - np.asarray(self.shift, dtype=np.float64)
        scaled /= np.asarray(self.scale, dtype=np.float64)
        return scaled.astype(np.float32)
