"""Linear regression on all rows as a fixed weighting of labels in which no row counts for much.

Regression predicts with weights: the score of class c is the sum of w_i over the rows of label c.
Least squares takes, of all weights with ``sum_i w_i z_i = z``, those of the least sum of squares.
Any others with the same property predict the same wherever labels are linear in the samples. An
attacker flips the labels of the largest weights first. So here the weights are capped, and the
others make up for what the capped ones lack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from sklearn.base import BaseEstimator

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.clusters.spectral import leading_pairs, neighbor_graph
from poisonproof.members.scikit import is_count, is_number
from poisonproof.members.similarity import nearest_rows
from poisonproof.threads import one_thread

_BITS = 28  # the absolute weights of a test row add up to less than 2^29
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
        """Find the components of all samples; `y` is not looked at.

        Parameters
        ----------
        X : ndarray of shape (m, d')
            Samples.
        y : ignored
        near : ndarray of int, shape (m, N), optional
            Nearest samples of every sample. Directions are then ordered by how much less
            neighbours differ in them than samples do, not by how much samples differ.
        """
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
                f"n_components is a whole number, at least 1 and at most the {n_columns} columns. "
                f"Got {self.n_components!r}."
            )
        numbers = is_number(self.share) and is_number(self.ridge)
        steps = is_count(self.n_steps) or self.n_steps == 0
        if not (numbers and steps and 0.0 <= self.share < 1.0 and 0.0 <= self.ridge < np.inf):
            raise InvalidInputError(
                "share is at least 0 and below 1, ridge at least 0, n_steps a whole number, at "
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


def whole_weights(weights: NDArray[np.floating]) -> NDArray[np.int32]:
    """Round weights to integers whose absolute values add up to less than 2^29 in every row.

    Parameters
    ----------
    weights : ndarray of shape (n, m)
        Weights of the m training rows for n asked rows, finite.

    Returns
    -------
    ndarray of int32, shape (n, m)
        The weights times a power of two of each row's own, as `fewest_flips` takes them.

    Examples
    --------
    >>> whole_weights(np.array([[0.5, -0.25, 0.0]]))
    array([[134217728, -67108864,         0]], dtype=int32)
    """
    weights = weights.astype(np.float64)
    power = np.frexp(np.abs(weights).sum(axis=1, keepdims=True))[1]
    whole: NDArray[np.int32] = np.rint(np.ldexp(weights, _BITS - power)).astype(np.int32)
    return whole


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


# What weightings along the graph of neighbours share: samples kept exactly, and who is near.


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


# Neighbourhoods along the graph of neighbours as a fixed weighting of labels: who is near, votes.
#
# Two samples are near if many short ways along the graph lead from one to the other, whatever the
# cosine of the two says. That is a diffusion, and its leading eigenvectors are coordinates in which
# near along the graph means a large cosine (Coifman and Lafon, 2006). Labels decide nothing about
# it.

_BLOCK = 256  # asked samples whose neighbours' coordinates are held together
_LONGEST = 1e4


class NeighborhoodWeights(GraphWeights):
    """Weights of training labels: 1 for the samples nearest along the graph, 0 for all others.

    Parameters
    ----------
    n_votes : int, default=1000
        Samples that vote, M; all, if there are fewer. More give larger certificates, at most
        M / 2, and fewer right predictions: beyond the size of a class others are asked, too.
    n_neighbors : int, default=30
        Nearest samples, by cosine, that each sample is joined to, and among which an asked sample
        is placed.
    n_coordinates : int, default=100
        Eigenvectors of the graph that are kept.
    breadth : float, default=20.0
        Length of the diffusion: it goes on until the squares of the coordinates' scales sum up to
        this number. About twice the number of groups that samples fall into.
    precision : {"single", "double"}, default="single"
        Bits kept of a row when neighbours are sought; see `poisonproof.features.exact_rows`.
    device : str, optional
        "cuda" finds neighbours on a GPU, with the same result.

    Guarantee
    ---------
    The weights of an asked sample are a function of the training samples, that sample and the
    parameters, bit for bit: no label enters, and no sample that is asked with it.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.1, 1.0], [0.0, 1.0]])
    >>> NeighborhoodWeights(2, n_neighbors=1).fit(X).integers(np.array([[1.0, 0.05]]))
    array([[1, 1, 0, 0]], dtype=int32)
    """

    def __init__(
        self,
        n_votes: int = 1000,
        *,
        n_neighbors: int = 30,
        n_coordinates: int = 100,
        breadth: float = 20.0,
        precision: Precision = "single",
        device: str | None = None,
    ) -> None:
        self.n_votes = n_votes
        self.n_neighbors = n_neighbors
        self.n_coordinates = n_coordinates
        self.breadth = breadth
        self.precision = precision
        self.device = device

    def _learn(self, near: NDArray[Any]) -> None:
        with one_thread():
            self.coordinates_ = diffusion_coordinates(near, self.n_coordinates, self.breadth)

    def _weights(self, near: NDArray[Any]) -> NDArray[np.int32]:
        if self._made is None:
            self._made = exact_rows(unit_places(self.coordinates_), self.precision)
        weights = np.zeros((len(near), len(self.coordinates_)), dtype=np.int32)
        for start in range(0, len(near), _BLOCK):
            here = slice(start, start + _BLOCK)
            places = unit_places(self.coordinates_[near[here]].mean(axis=1))
            exact = exact_rows(places, self.precision)
            voters = nearest_rows(exact, self._made, self.n_votes, self.device)
            np.put_along_axis(weights[here], voters, 1, axis=1)
        return weights

    def _check_parameters(self) -> None:
        counts = (self.n_votes, self.n_neighbors, self.n_coordinates)
        if not (all(map(is_count, counts)) and is_number(self.breadth) and self.breadth > 0.0):
            raise InvalidInputError(
                "n_votes, n_neighbors and n_coordinates are whole numbers, at least 1, breadth is "
                f"a number above 0. Got {self.n_votes!r}, {self.n_neighbors!r}, "
                f"{self.n_coordinates!r} and {self.breadth!r}."
            )


def diffusion_coordinates(near: NDArray[Any], count: int, breadth: float) -> Floats:
    """Return coordinates in which near means: many short ways along the graph, shape (m, E).

    Parameters
    ----------
    near : ndarray of int, shape (m, N)
        The nearest samples of every sample.
    count : int
        Coordinates, E; at most m - 1.
    breadth : float
        What the squares of the coordinates' scales sum up to, as far as the graph allows it.
    """
    if len(near) == 1:
        return np.ones((1, 1))
    values, vectors, scale = leading_pairs(neighbor_graph(near), min(count, len(near) - 1))
    values = values.clip(0.0, 1.0)

    def excess(length: float) -> float:
        return float((values ** (2 * length)).sum() - breadth)

    if excess(0.0) <= 0.0:
        length = 0.0
    elif excess(_LONGEST) >= 0.0:  # parts of the graph that nothing joins
        length = _LONGEST
    else:
        length = brentq(excess, 0.0, _LONGEST)
    found: Floats = vectors * values**length * scale[:, None]
    return found


def unit_places(X: Floats) -> Floats:
    """Return rows of length one; a row of zeros stays."""
    lengths = np.sqrt((X * X).sum(axis=1, keepdims=True))
    unit: Floats = X / np.where(lengths > 0, lengths, 1.0)
    return unit


# Walks along the graph of neighbours as a fixed weighting of labels: who is visited, votes.
#
# A walk begins at a neighbour of the asked sample and goes on with a fixed chance after every step.
# Where few arcs leave a group of samples, it stays; so the rows it visits often are those of the
# group, as large or as small as the group is. Labels decide nothing about it.

_WALK_WEIGHTS_BLOCK = 128  # asked samples whose walks are summed together; blocks are filled up
_ERROR = 1e-4


class WalkWeights(GraphWeights):
    """Weights of training labels: how often a walk visits a row, compared with walks from anywhere.

    The score of a class is then the propagation of labels of Zhou et al. (2004), continued to new
    samples as by Delalleau, Bengio and Le Roux (2005).

    Parameters
    ----------
    n_neighbors : int, default=30
        Nearest samples, by cosine, that each sample is joined to, and that walks begin at; all
        others, if there are fewer.
    chance : float, default=0.99
        Chance that a walk goes on after a step; its mean length is ``1 / (1 - chance)``. Longer
        walks ask more rows: larger certificates, fewer right predictions.
    precision : {"single", "double"}, default="single"
        Bits kept of a row when neighbours are sought; see `poisonproof.features.exact_rows`.
    device : str, optional
        "cuda" finds neighbours on a GPU, with the same result.

    Guarantee
    ---------
    The weights of an asked sample are a function of the training samples, that sample and the
    parameters, bit for bit: no label enters, and no sample that is asked with it.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.1, 1.0], [0.0, 1.0]])
    >>> WalkWeights(n_neighbors=1, chance=0.5).fit(X).integers(np.array([[1.0, 0.05]])) > 0
    array([[ True,  True, False, False]])
    """

    def __init__(
        self,
        n_neighbors: int = 30,
        chance: float = 0.99,
        *,
        precision: Precision = "single",
        device: str | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.chance = chance
        self.precision = precision
        self.device = device

    def propagate(self, values: NDArray[Any]) -> Floats:
        """Return, for every training row, the sum of all rows' values by their weights.

        Parameters
        ----------
        values : ndarray of shape (m, C)
            Values of the training rows, such as their clusters as columns of 0 and 1.
        """
        steps, scale = self._graph()
        return _resolvent(steps, values.astype(np.float32) * scale, self.chance) * scale

    def _learn(self, near: NDArray[Any]) -> None:
        self.near_ = near

    def _weights(self, near: NDArray[Any]) -> NDArray[np.int32]:
        weights = np.empty((len(near), len(self.near_)), dtype=np.int32)
        for start in range(0, len(near), _WALK_WEIGHTS_BLOCK):
            here = slice(start, start + _WALK_WEIGHTS_BLOCK)
            weights[here] = whole_weights(self._visits(near[here]))
        return weights

    def _visits(self, near: NDArray[Any]) -> Floats:
        """Sum the walks that begin at the rows of `near`, shape (n, N); return shape (n, m)."""
        steps, scale = self._graph()
        begun = np.zeros((len(scale), _WALK_WEIGHTS_BLOCK), dtype=np.float32)
        columns = np.repeat(np.arange(len(near)), near.shape[1])
        np.add.at(begun, (near.ravel(), columns), np.float32(1.0 / near.shape[1]))
        begun *= scale
        summed = _resolvent(steps, begun, self.chance) * scale
        visits = np.ascontiguousarray(summed.T[: len(near)])
        # The sum ends after finitely many terms, and may leave less than nothing where none comes.
        np.maximum(visits, 0.0, out=visits)
        return visits

    def _graph(self) -> tuple[sparse.csr_array, Floats]:
        if self._made is None:
            self._made = _walk(self.near_)
        steps, scale = self._made
        return steps, scale

    def _check_parameters(self) -> None:
        number = is_number(self.chance) and 0.0 <= self.chance < 1.0
        if not (is_count(self.n_neighbors) and number):
            raise InvalidInputError(
                "n_neighbors is a whole number, at least 1, chance at least 0 and below 1. "
                f"Got {self.n_neighbors!r} and {self.chance!r}."
            )


def _walk(near: NDArray[Any]) -> tuple[sparse.csr_array, Floats]:
    """Return D^-1/2 W D^-1/2 of the graph and D^-1/2 as a column, in which a step is symmetric."""
    graph = neighbor_graph(near)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    # The only sample there is has no arcs and keeps its walks.
    scale = 1.0 / np.sqrt(np.where(degrees > 0, degrees, 1.0))
    steps = sparse.csr_array(sparse.diags_array(scale) @ graph @ sparse.diags_array(scale))
    steps.sort_indices()
    return steps.astype(np.float32), scale.astype(np.float32)[:, None]


def _resolvent(steps: sparse.csr_array, begun: Floats, chance: float) -> Floats:
    """Return ``sum_t chance^t steps^t begun`` by Chebyshev's iteration, up to `_ERROR`.

    `steps` has its eigenvalues between -1 and 1, whatever the samples are. So the number of turns
    and their coefficients depend on `chance` alone, and columns never see each other.
    """
    if chance == 0.0:
        return begun
    turns = int(np.ceil(np.arccosh(1.0 / _ERROR) / np.arccosh(1.0 / chance)))
    solution, residual = np.zeros_like(begun), begun.copy()
    change, ratio = residual.copy(), chance
    for turn in range(turns):
        solution += change
        residual -= change
        residual += np.float32(chance) * (steps @ change)
        following = 1.0 / (2.0 / chance - ratio) if turn else chance / (2.0 - chance * chance)
        change *= np.float32(following * ratio)
        change += np.float32(2.0 * following / chance) * residual
        ratio = following
    return solution + change
