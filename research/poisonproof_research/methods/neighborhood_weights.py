"""Neighbourhoods along the graph of neighbours as a fixed weighting of labels: who is near, votes.

Two samples are near if many short ways along the graph lead from one to the other, whatever the
cosine of the two says. That is a diffusion, and its leading eigenvectors are coordinates in which
near along the graph means a large cosine (Coifman and Lafon, 2006). Labels decide nothing about
it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.base import BaseEstimator

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.clusters import leading_pairs
from poisonproof.members.scikit import is_count, is_number
from poisonproof.members.similarity import nearest_rows, neighbor_graph
from poisonproof.threads import one_thread

Floats = NDArray[np.float64]

_BLOCK = 256  # asked samples whose neighbours' coordinates are held together
_LONGEST = 1e4


class NeighborhoodWeights(BaseEstimator):
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

    rowwise: ClassVar[bool] = True
    """The weights for a sample do not depend on what is asked with it."""

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

    def fit(self, X: NDArray[Any], y: Any = None, *, near: NDArray[Any] | None = None) -> Self:
        """Join every sample to its nearest ones, those in `near` if given; `y` is not looked at."""
        self._check_parameters()
        rows = exact_rows(np.asarray(X), self.precision)
        if near is None:
            near = nearest_rows(rows, rows, self.n_neighbors + 1, self.device)
        self.values_, self.exponents_ = rows.values, rows.exponents
        self._made: Any = None
        with one_thread():
            self.coordinates_ = diffusion_coordinates(near, self.n_coordinates, self.breadth)
        return self

    def integers(
        self, asked: NDArray[Any], *, near: NDArray[Any] | None = None
    ) -> NDArray[np.int32]:
        """Return the integer weights of all training rows for every asked row, shape (n, m)."""
        if near is None:
            rows = exact_rows(np.asarray(asked), self.precision)
            known = ExactRows(self.values_, self.exponents_)
            near = nearest_rows(rows, known, self.n_neighbors, self.device)
        return self._weights(near)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the rest says again."""
        return {**super().__getstate__(), "_made": None}

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
                "n_votes, n_neighbors and n_coordinates are integers, at least 1, breadth is "
                f"a number above 0. Got {self.n_votes!r}, {self.n_neighbors!r}, "
                f"{self.n_coordinates!r} and {self.breadth!r}."
            )


def diffusion_coordinates(near: NDArray[Any], count: int, breadth: float) -> Floats:
    """Return coordinates in which near means: many short ways along the graph, shape (m, E)."""
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
