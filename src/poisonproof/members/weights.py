"""Weights of training labels that samples alone decide: walks along the graph of neighbors.

A walk begins at a neighbor of the test row and goes on with a fixed chance after every step. Where
few edges leave a group of samples, it stays; so the rows it visits often are those of the group, as
large or as small as the group is.

Hand-written because scikit-learn's `LabelSpreading` propagates the labels themselves and stops by
them, so that a flipped label would change the weights of the others.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, exact_rows
from poisonproof.members.scikit import is_count, is_number
from poisonproof.members.similarity import nearest_rows, neighbor_graph

_BITS = 28  # the absolute weights of a test row add up to less than 2^29
_BLOCK = 128  # test rows whose walks are summed together; blocks are filled up
_ERROR = 1e-4

Floats = NDArray[np.float32]


class WalkWeights(BaseEstimator):
    """Weight rows by how often a walk from the test row visits them, relative to a random start.

    The score of a class is then the propagation of labels of Zhou et al. (2004), continued to new
    samples as by Delalleau, Bengio and Le Roux (2005).

    Parameters
    ----------
    n_neighbors : int, default=30
        Nearest samples, by cosine, that each sample is joined to, and that walks begin at; all
        others, if there are fewer.
    chance : float, default=0.99
        Chance that a walk goes on after a step; its mean length is ``1 / (1 - chance)``. Longer
        walks reach more rows: larger certificates, fewer right predictions.
    device : str, optional
        "cuda" finds neighbors on a GPU, with the same result.

    Guarantee
    ---------
    The weights for a row are a function of the training samples, that sample and the
    parameters, bit for bit: no label enters, and no other row of the same call.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.1, 1.0], [0.0, 1.0]])
    >>> WalkWeights(n_neighbors=1, chance=0.5).fit(X).integers(np.array([[1.0, 0.05]])) > 0
    array([[ True,  True, False, False]])
    """

    rowwise: ClassVar[bool] = True
    """The weights for a sample do not depend on the other rows of the same call."""

    def __init__(
        self,
        n_neighbors: int = 30,
        chance: float = 0.99,
        *,
        device: str | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.chance = chance
        self.device = device

    def fit(self, X: NDArray[Any], y: Any = None) -> Self:
        """Join every sample to its nearest ones.

        Parameters
        ----------
        X : array of shape (m, d)
            Training samples.
        y : object
            Ignored: no label may decide a weight.
        """
        number = is_number(self.chance) and 0.0 <= self.chance < 1.0
        if not (is_count(self.n_neighbors) and number):
            raise InvalidInputError(
                "n_neighbors is an integer of at least 1, chance at least 0 and below 1. "
                f"Got {self.n_neighbors!r} and {self.chance!r}."
            )
        rows = exact_rows(np.asarray(X), "single")
        self.values_, self.exponents_ = rows.values, rows.exponents
        self.near_ = nearest_rows(rows, rows, self.n_neighbors + 1, self.device)
        self._made: Any = None
        return self

    def integers(self, X: NDArray[Any]) -> NDArray[np.int32]:
        """Return the weights of all training rows for every test row.

        Parameters
        ----------
        X : array of shape (n, d)
            Test samples.

        Returns
        -------
        ndarray of int, shape (n, m)
            Absolute values add up to less than 2^29 in every row. A weighting of your own may
            return larger integers, below 2^62; only their ratios in a row matter.
        """
        rows = exact_rows(np.asarray(X), "single")
        known = ExactRows(self.values_, self.exponents_)
        near = nearest_rows(rows, known, self.n_neighbors, self.device)
        weights = np.empty((len(near), len(self.near_)), dtype=np.int32)
        for start in range(0, len(near), _BLOCK):
            here = slice(start, start + _BLOCK)
            weights[here] = whole_weights(self._visits(near[here]))
        return weights

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the graph, which `near_` decides."""
        return {**super().__getstate__(), "_made": None}

    def _visits(self, near: NDArray[Any]) -> Floats:
        """Sum the walks that begin at the rows of `near`, shape (n, N); return shape (n, m)."""
        steps, scale = self._graph()
        begun = np.zeros((len(scale), _BLOCK), dtype=np.float32)
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


def whole_weights(weights: NDArray[np.floating]) -> NDArray[np.int32]:
    """Round finite weights (n, m) to integers, times a power of two of each row's own.

    Their absolute values add up to less than 2^29 in every row, as `fewest_flips` takes them.

    >>> whole_weights(np.array([[0.5, -0.25, 0.0]]))
    array([[134217728, -67108864,         0]], dtype=int32)
    """
    weights = weights.astype(np.float64)
    power = np.frexp(np.abs(weights).sum(axis=1, keepdims=True))[1]
    whole: NDArray[np.int32] = np.rint(np.ldexp(weights, _BITS - power)).astype(np.int32)
    return whole
