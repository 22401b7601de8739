"""Linear regression on all rows as a fixed weighting of labels in which no row counts for much.

Regression predicts with weights: the score of class c is the sum of w_i over the rows of label c.
Least squares takes, of all weights with ``sum_i w_i z_i = z``, those of the least sum of squares.
Any others with the same property predict the same wherever labels are linear in the samples. An
attacker flips the labels of the largest weights first. So here the weights are capped, and the
others make up for what the capped ones lack.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.scikit import is_count, is_number
from poisonproof.members.similarity import neighbor_graph
from poisonproof.members.weights import whole_weights
from poisonproof.threads import one_thread

_MOMENTUM = 3.0

Floats = NDArray[np.float32]


class FlatWeights(BaseEstimator):
    """Weights of training labels, from samples alone.

    Samples are scaled to length one and described by a few components, all scaled to variance one,
    and a constant: the principal components, or, where the neighbours of all samples are given,
    those in which neighbours differ least.

    Parameters
    ----------
    n_components : int, default=128
        Components, d.
    share : float, default=0.03
        Of all rows, how many may reach the cap: for every test row it is the size of least
        squares' weights that this share of them exceeds. 0 is least squares itself.
    ridge : float, default=0.0
        Ridge of the regression, in units of the mean variance of a column. Components of little
        variance count less.
    n_steps : int, default=10
        Corrections of the weights below the cap.

    Guarantee
    ---------
    The weights are a function of samples and parameters; no label enters.

    Assumes
    -------
    Weights are computed in floating point and then rounded, so that the last bits of an asked
    row's integers may change with the number of rows asked in one call. Predict and certify with
    the same integers, as `fewest_flips` does.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 8))
    >>> plain, flat = (FlatWeights(8, share).fit(X).integers(X[:5]) for share in (0.0, 0.3))
    >>> largest = [float((abs(w).max(axis=1) / w.sum(axis=1)).mean()) for w in (plain, flat)]
    >>> largest[1] < largest[0] / 2
    True
    """

    def __init__(
        self,
        n_components: int = 128,
        share: float = 0.03,
        *,
        ridge: float = 0.0,
        n_steps: int = 10,
    ) -> None:
        self.n_components = n_components
        self.share = share
        self.ridge = ridge
        self.n_steps = n_steps

    def fit(self, X: NDArray[Any], y: Any = None, *, near: NDArray[Any] | None = None) -> Self:
        """Find the components of all samples; `y` is not looked at."""
        self._check_parameters(X.shape[1])
        with one_thread():
            rows = _unit(X)
            self.centre_ = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
            rows -= self.centre_
            whitened = _whitening(rows, None if near is not None else self.n_components)
            if near is not None:
                whitened = _shared(rows, whitened, near)[:, : self.n_components]
            self.components_ = whitened.astype(np.float32)
            self.kept_ = self._kept(whitened, float((rows * rows).sum() / rows.size))
            self.rows_ = self._with_constant(rows @ self.components_)
        return self

    def integers(self, asked: NDArray[Any]) -> NDArray[np.int32]:
        """Return the integer weights of all training rows for every asked row, shape (n, m)."""
        with one_thread():
            places = self._with_constant((_unit(asked) - self.centre_) @ self.components_)
            weights = self._flat(places)
        return whole_weights(weights)

    def _check_parameters(self, n_columns: int) -> None:
        if not (is_count(self.n_components) and self.n_components <= n_columns):
            raise InvalidInputError(
                f"n_components is an integer, at least 1 and at most the {n_columns} columns. "
                f"Got {self.n_components!r}."
            )
        numbers = is_number(self.share) and is_number(self.ridge)
        steps = is_count(self.n_steps) or self.n_steps == 0
        if not (numbers and steps and 0.0 <= self.share < 1.0 and 0.0 <= self.ridge < np.inf):
            raise InvalidInputError(
                "share is at least 0 and below 1, ridge at least 0, n_steps an integer, at "
                f"least 0. Got {self.share!r}, {self.ridge!r} and {self.n_steps!r}."
            )

    def _flat(self, places: Floats) -> Floats:
        """Cap weights and correct the others; an accelerated ascent in the dual problem."""
        part = np.float32(1.0 / len(self.rows_))
        dual: Floats = places * self.kept_
        weights: Floats = dual @ self.rows_.T
        if self.share == 0.0:
            return weights
        kept = min(len(self.rows_) - 1, round((1.0 - self.share) * len(self.rows_)))
        cap = np.partition(np.abs(weights), kept, axis=1)[:, kept : kept + 1]
        np.clip(weights, -cap, cap, out=weights)
        ahead = dual
        for step in range(self.n_steps):
            lacking = places - part * (weights @ self.rows_)
            before, dual = dual, self.kept_ * (ahead + lacking)
            ahead = dual + np.float32(step / (step + _MOMENTUM)) * (dual - before)
            np.matmul(ahead, self.rows_.T, out=weights)
            np.clip(weights, -cap, cap, out=weights)
        return weights

    def _kept(self, whitened: NDArray[np.float64], mean_variance: float) -> Floats:
        """Return how much of each component, and of the constant, the ridge leaves."""
        variances = 1.0 / (whitened * whitened).sum(axis=0)
        kept = variances / (variances + self.ridge * mean_variance)
        return np.append(kept, 1.0).astype(np.float32)

    def _with_constant(self, rows: Floats) -> Floats:
        return np.hstack([rows, np.ones((len(rows), 1), dtype=np.float32)])


def _whitening(rows: Floats, count: int | None) -> NDArray[np.float64]:
    """Return the `count` leading principal directions, scaled to variance one, as columns."""
    squares, turns = np.linalg.eigh((rows.T @ rows).astype(np.float64) / len(rows))
    squares, turns = squares[::-1][:count], turns[:, ::-1][:, :count]
    # A component without variance says nothing; dividing by it would only add noise.
    seen = squares > 1e-7 * squares[0]
    directions: NDArray[np.float64] = turns[:, seen] / np.sqrt(squares[seen])
    return directions


def _shared(rows: Floats, whitened: NDArray[np.float64], near: NDArray[Any]) -> NDArray[np.float64]:
    """Turn directions of variance one so that those in which neighbours differ least come first.

    These are the locality preserving projections of He and Niyogi (2003), with unit variance in
    place of unit length.
    """
    graph = neighbor_graph(near)
    degrees = np.asarray(graph.sum(axis=1))
    places = rows @ whitened.astype(np.float32)
    apart = degrees[:, np.newaxis].astype(np.float32) * places - graph.astype(np.float32) @ places
    _, turns = np.linalg.eigh((places.T @ apart).astype(np.float64))
    turned: NDArray[np.float64] = whitened @ turns
    return turned


def _unit(X: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # what is infinite is refused below
        rows = np.asarray(X, dtype=np.float32)
        lengths = np.sqrt((rows * rows).sum(axis=1, dtype=np.float64, keepdims=True))
    if not np.isfinite(lengths).all():
        raise InvalidRowsError(
            "Flat weights take finite samples, whose squares are finite in float32. Got NaN, "
            f"infinite or larger values in row {int(np.argmin(np.isfinite(lengths)))}."
        )
    return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
