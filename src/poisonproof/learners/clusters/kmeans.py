"""k-means in whole numbers: the same clusters on every machine and device."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from poisonproof.learners.clusters.base import WholeClusters
from poisonproof.learners.clusters.whole import (
    EXACT_BITS,
    Grid,
    WholeMatrix,
    bits_of,
    require_whole,
    total,
)

__all__ = ["KMeansClusters"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FINEST = 24  # bits of a number: as many as float32 keeps


class KMeansClusters(WholeClusters):
    """Round clusters: every sample belongs to the nearest of K means (Lloyd, 1982).

    Samples and means lie on a grid of whole numbers (24 bits for up to 8 columns, 20 for up to
    2,048), where squared distances and sums over samples are exact. Starts are drawn with
    k-means++ (Arthur and Vassilvitskii, 2007), the best of several candidates at each step.

    Parameters
    ----------
    n_clusters : int, default=10
        Number of clusters, K.
    n_init : int, default=4
        Starts, of which the one with the smallest squared distances is kept.
    max_iter : int, default=300
        Rounds of each start, at most.
    tol : float, default=1e-4
        A start has arrived when at most this share of the samples changes its cluster.
    device : str, optional
        "cuda" multiplies on a GPU, with the same result.
    random_state : int, default=0
        Seed of the starts.

    Attributes
    ----------
    centres_ : ndarray of shape (K, d)
        The means, on the grid.
    labels_ : ndarray of shape (m,)
        The cluster of every sample.

    Guarantee
    ---------
    `labels_` is a function of the samples in their order and of the parameters but `device`;
    `predict` of one row and the fitted means.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> clusters = KMeansClusters(2).fit(X)
    >>> clusters.labels_[0] == clusters.labels_[1] != clusters.labels_[2] == clusters.labels_[3]
    np.True_
    >>> clusters.predict([[9.0]]) == clusters.labels_[3]
    array([ True])
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        n_init: int = 4,
        max_iter: int = 300,
        tol: float = 1e-4,
        device: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.device = device
        self.random_state = random_state

    def _learn(self, samples: Floats) -> None:
        self.grid_ = Grid.around(samples, _bits(samples.shape[1]))
        placed = _Samples(self.grid_.place(samples), self.device)
        draws = np.random.default_rng(self.random_state)
        least = None
        for _ in range(self.n_init):
            centres, distances = self._one_start(placed, draws)
            spread = total(distances.min(axis=1))
            if least is None or spread < least:
                least, self.centres_ = spread, centres
                self.labels_ = np.asarray(distances.argmin(axis=1), dtype=np.int64)

    def _clusters_of(self, rows: Floats) -> Ints:
        return _Samples(rows, None).nearest(self.centres_)

    def check_state(self, n_clusters: int) -> None:
        """Raise `ValueError` unless what was learned is whole, for what a file may hold."""
        n_columns = len(self.grid_.middle)
        self.grid_.check(_bits(n_columns))
        require_whole(self.centres_, (n_clusters, n_columns), _bits(n_columns))

    def _one_start(self, samples: _Samples, draws: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the means of one start, and all squared distances to them."""
        centres = _spread_starts(samples, self.n_clusters, draws)
        clusters: Ints = np.full(len(samples.rows), -1)
        for _ in range(self.max_iter):
            before, clusters = clusters, samples.nearest(centres)
            if np.count_nonzero(clusters != before) <= self.tol * len(clusters):
                break
            centres = samples.means(clusters, centres)
        return centres, samples.distances(centres)


def _bits(n_columns: int) -> int:
    """Return how long numbers may be: a squared distance is at most d (2 * 2^bits)^2."""
    return min(_FINEST, (EXACT_BITS - 2 - bits_of(n_columns)) // 2)


class _Samples:
    """Samples on the grid, and where their products are made."""

    def __init__(self, rows: Floats, device: str | None) -> None:
        self.rows = rows
        self.held = WholeMatrix(rows, device)

    @cached_property
    def squares(self) -> Floats:
        return _squares(self.rows)

    def nearest(self, centres: Floats) -> Ints:
        """Return the nearest of the means, the first of equally near ones."""
        ahead = _squares(centres) - 2.0 * self.held.times(centres.T)
        return np.asarray(ahead.argmin(axis=1), dtype=np.int64)

    def distances(self, centres: Floats) -> Floats:
        """Return squared distances, exactly, shape (m, k)."""
        sums: Floats = self.squares[:, None] + _squares(centres)
        return sums - 2.0 * self.held.times(centres.T)

    def means(self, clusters: Ints, centres: Floats) -> Floats:
        """Return the mean of every cluster, rounded to the grid; an empty one stays."""
        ones = (clusters[:, None] == np.arange(len(centres))).astype(np.float64)
        sizes = ones.sum(axis=0)[:, None]
        sums = self.held.weighed(ones)
        return np.where(sizes > 0, np.rint(sums / np.maximum(sizes, 1.0)) + 0.0, centres)


def _squares(rows: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares


def _spread_starts(samples: _Samples, count: int, draws: np.random.Generator) -> Floats:
    """Draw the first means among the samples, likelier the farther from those drawn before."""
    n_candidates = 2 + int(np.log(count))
    chosen = [int(draws.integers(len(samples.rows)))]
    closest = samples.distances(samples.rows[chosen])[:, 0]
    for _ in range(1, count):
        candidates = _drawn(closest, n_candidates, draws)
        tried = np.minimum(samples.distances(samples.rows[candidates]), closest[:, None])
        best = min(range(n_candidates), key=lambda c: total(tried[:, c]))
        chosen.append(int(candidates[best]))
        closest = tried[:, best].copy()
    return samples.rows[chosen]


def _drawn(weights: Floats, count: int, draws: np.random.Generator) -> Ints:
    """Draw samples in proportion to whole-number weights; anyone, if all are 0."""
    whole = weights.astype(np.int64)
    # Shortened so that their sum fits into 63 bits.
    whole >>= max(0, int(whole.max()).bit_length() + bits_of(len(whole)) - 62)
    up_to = whole.cumsum()
    if up_to[-1] == 0:
        return draws.integers(len(whole), size=count)
    return np.searchsorted(up_to, draws.integers(up_to[-1], size=count), side="right")
