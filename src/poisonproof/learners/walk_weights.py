"""Walks along the graph of neighbours as a fixed weighting of labels: who is visited, votes.

A walk begins at a neighbour of the asked sample and goes on with a fixed chance after every step.
Where few arcs leave a group of samples, it stays; so the rows it visits often are those of the
group, as large or as small as the group is. Labels decide nothing about it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import Precision
from poisonproof.learners.clusters.spectral import neighbor_graph
from poisonproof.learners.flat_weights import whole_weights
from poisonproof.learners.graph_weights import GraphWeights
from poisonproof.learners.parameters import is_count, is_number

__all__ = ["WalkWeights"]

_BLOCK = 128  # asked samples whose walks are summed together; blocks are filled up
_ERROR = 1e-4

Floats = NDArray[np.float32]


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
        for start in range(0, len(near), _BLOCK):
            here = slice(start, start + _BLOCK)
            weights[here] = whole_weights(self._visits(near[here]))
        return weights

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
