"""What weightings along the graph of neighbours share: samples kept exactly, and who is near."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.learners.similarity import nearest_rows

__all__ = ["GraphWeights"]


class GraphWeights(BaseEstimator, ABC):
    """Weights of training labels that neighbours decide, of training samples and of asked ones."""

    rowwise: ClassVar[bool] = True
    """The weights for a sample do not depend on what is asked with it."""

    n_neighbors: int
    precision: Precision
    device: str | None

    def fit(self, X: NDArray[Any], y: Any = None, *, near: NDArray[Any] | None = None) -> Self:
        """Join every sample to its nearest ones; `y` is not looked at.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            Samples.
        y : ignored
        near : ndarray of int, shape (m, N), optional
            The nearest samples of every sample, where they are known already.
        """
        self._check_parameters()
        rows = exact_rows(np.asarray(X), self.precision)
        if near is None:
            near = nearest_rows(rows, rows, self.n_neighbors + 1, self.device)
        self.values_, self.exponents_ = rows.values, rows.exponents
        self._made: Any = None
        self._learn(near)
        return self

    def integers(
        self, asked: NDArray[Any], *, near: NDArray[Any] | None = None
    ) -> NDArray[np.int32]:
        """Return the integer weights of all training rows for every asked row, shape (n, m).

        Parameters
        ----------
        asked : ndarray of shape (n, d)
            Samples.
        near : ndarray of int, shape (n, N), optional
            The nearest training samples of every one of them, where they are known already.
        """
        if near is None:
            rows = exact_rows(np.asarray(asked), self.precision)
            known = ExactRows(self.values_, self.exponents_)
            near = nearest_rows(rows, known, self.n_neighbors, self.device)
        return self._weights(near)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the rest says again."""
        return {**super().__getstate__(), "_made": None}

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise InvalidInputError for parameters that make no sense."""

    @abstractmethod
    def _learn(self, near: NDArray[Any]) -> None:
        """Keep what the neighbours of all training samples say."""

    @abstractmethod
    def _weights(self, near: NDArray[Any]) -> NDArray[np.int32]:
        """Return the weights of samples with these neighbours, shape (n, m)."""
