"""What clusterers check, and what those in whole numbers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.learners.clusters.whole import Grid
from poisonproof.learners.parameters import check_random_state, is_count, is_number

__all__ = ["WholeClusters", "check_counts", "check_share"]


class WholeClusters(ClusterMixin, BaseEstimator, ABC):
    """Base class: samples become whole numbers on a grid, and a subclass learns from those."""

    rowwise: ClassVar[bool] = True
    """The cluster of a new sample does not depend on what is asked with it."""

    n_clusters: int
    tol: float
    random_state: int

    grid_: Grid
    labels_: NDArray[np.int64]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the clusters of the samples `X`, shape (m, d); `y` is not looked at."""
        samples = _table(X)
        self._check_parameters(samples)
        self._learn(samples)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of every row, the first of equally good ones."""
        check_is_fitted(self, "labels_")
        return self._clusters_of(self.grid_.place(_table(X, len(self.grid_.middle))))

    def _check_parameters(self, samples: NDArray[np.float64]) -> None:
        check_counts(self, ("n_clusters", "n_init", "max_iter"), len(samples))
        check_share(self, "tol")
        check_random_state(self.random_state)

    @abstractmethod
    def _learn(self, samples: NDArray[np.float64]) -> None:
        """Learn the grid, the clusters and `labels_`."""

    @abstractmethod
    def _clusters_of(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the clusters of rows on the grid."""

    @abstractmethod
    def check_state(self, n_clusters: int) -> None:
        """Raise `ValueError` unless what was learned is whole, for what a file may hold."""


def check_counts(clusters: Any, names: Sequence[str], n_samples: int) -> None:
    """Raise for parameters that are no counts, and for more clusters than samples."""
    for name in names:
        value = getattr(clusters, name)
        if not is_count(value):
            raise InvalidInputError(f"{name} is a whole number, at least 1. Got {value!r}.")
    if clusters.n_clusters > n_samples:
        raise InvalidInputError(
            f"n_clusters={clusters.n_clusters} is more than the n_samples={n_samples} samples."
        )


def check_share(clusters: Any, name: str) -> None:
    """Raise for a parameter that is no number from 0 to 1."""
    value = getattr(clusters, name)
    if not is_number(value) or not 0 <= value <= 1:
        raise InvalidInputError(f"{name} is a number from 0 to 1. Got {value!r}.")


def _table(X: Any, n_columns: int | None = None) -> NDArray[np.float64]:
    """Return finite numbers of shape (n, d), with as many columns as clusters were learned from."""
    if sparse.issparse(X):
        raise InvalidRowsError("X is sparse; clusters need a dense array, such as X.toarray().")
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != (n_columns or array.shape[1]) or not array.shape[1]:
        columns = "d" if n_columns is None else n_columns
        raise InvalidRowsError(f"X has the shape (n, {columns}). Got {array.shape}.")
    try:
        rows = array.astype(np.float64, casting="unsafe" if array.dtype == object else "same_kind")
    except (TypeError, ValueError) as error:
        raise InvalidRowsError(f"X holds numbers. Got {array.dtype}: {error}") from error
    if not np.isfinite(rows).all():
        raise InvalidRowsError(
            "X contains NaN or infinity; every value must be finite. Drop or fill those rows."
        )
    return rows
