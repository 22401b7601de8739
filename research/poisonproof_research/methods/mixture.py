"""A mixture of Gaussians whose sums are integers: the same clusters on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods.kmeans import (
    EXACT_BITS,
    Grid,
    KMeansClusters,
    WholeClusters,
    WholeMatrix,
    bits_of,
    check_share,
    require_whole,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BITS = 16  # of a value; of the two halves of its square
_ROOM = 4  # bits of a value beyond the middle nine tenths of its column
_SHARE_BITS = 20  # of the share of a cluster in a sample
_NARROWEST = 4.0**3  # least variance: eight steps, a 256th to a 512th of those nine tenths
_WIDEST = 2**15  # columns: curvatures keep 22 bits


class MixtureClusters(WholeClusters):
    """Clusters of any extent along the axes: a mixture of Gaussians with diagonal covariance.

    Expectation and maximisation by turns (Dempster, Laird and Rubin, 1977), from clusters of
    `KMeansClusters`. Values are rounded to a grid around the median of their column, with at least
    2,048 steps for its middle nine tenths, and moved to its edge beyond 16 times those; shares are
    rounded to 20 bits, curvatures to as many as leave every sum over columns and over samples
    exact: 34 for 8 columns, 28 for 512, 22 for 32,768. A new sample takes the likeliest cluster.

    Parameters
    ----------
    n_clusters : int, default=10
        Number of clusters, K.
    n_init : int, default=4
        Starts of k-means, from whose best clusters the mixture sets out.
    max_iter : int, default=100
        Rounds, at most.
    tol : float, default=1e-3
        The mixture has arrived when the mean log-likelihood grows by less.
    floor : float, default=0.1
        Least variance of a cluster in a column, as a share of the mean variance of the clusters of
        k-means there: a column in which a cluster is flat by chance would decide alone.
        0.1 was best on average over small tables (experiments/row_votes/choose_floor.py).
    device : str, optional
        "cuda" multiplies on a GPU, with the same result.
    random_state : int, default=0
        Seed of the starts.

    Attributes
    ----------
    parabolas_ : Parabolas
        The logarithms of the Gaussians.
    labels_ : ndarray of shape (m,)
        The cluster of every sample.

    Guarantee
    ---------
    `labels_` is a function of the samples in their order and of the parameters but `device`;
    `predict` of one row and of `parabolas_`, on every machine.

    Assumes
    -------
    For `labels_`: exponentials and logarithms of NumPy are the same wherever fits are compared.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found = MixtureClusters(2).fit(X).predict(X)
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        floor: float = 0.1,
        device: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.floor = floor
        self.device = device
        self.random_state = random_state

    def _check_parameters(self, samples: Floats) -> None:
        super()._check_parameters(samples)
        check_share(self, "floor")
        if samples.shape[1] > _WIDEST:
            raise InvalidInputError(
                f"A mixture takes up to {_WIDEST} columns. Got {samples.shape[1]}: map them to "
                "fewer, or take clusterer='kmeans'."
            )

    def _learn(self, samples: Floats) -> None:
        start = KMeansClusters(
            self.n_clusters,
            n_init=self.n_init,
            device=self.device,
            random_state=self.random_state,
        ).fit(samples)
        self.grid_ = Grid.of_columns(samples, _BITS, _ROOM)
        values = _Values.of(self.grid_.place(samples), self.device)
        shares = (start.labels_[:, None] == np.arange(self.n_clusters)).astype(np.float64)
        floors, likelihood = np.array(_NARROWEST), -math.inf
        for step in range(self.max_iter):
            weights, means, variances = values.mixture(shares)
            if not step:
                within = (weights[:, None] * variances).sum(axis=0)
                floors = np.maximum(self.floor * within, _NARROWEST)
            self.parabolas_ = Parabolas.of(weights, means, np.maximum(variances, floors))
            logs = values.log_likelihoods(self.parabolas_)
            before, (shares, likelihood) = likelihood, _shares(logs)
            if likelihood - before < self.tol:
                break
        self.labels_ = _likeliest(logs)

    def _clusters_of(self, rows: Floats) -> Ints:
        return _likeliest(_Values.of(rows, None).log_likelihoods(self.parabolas_))

    def check_state(self, n_clusters: int) -> None:
        """Raise `ValueError` unless what was learned is whole, for what a file may hold."""
        self.grid_.check(_BITS)
        self.parabolas_.check((n_clusters, len(self.grid_.middle)))


@dataclass(frozen=True)
class Parabolas:
    """The logarithm of a weighted Gaussian is a parabola in every column, in integers.

    Attributes
    ----------
    levels : ndarray of shape (K,)
        What every cluster has where all values are 0.
    curvatures, slopes : ndarray of shape (K, d)
        Whole numbers; a value x of a column adds ``slope * x - curvature * x * x``.
    curvature_powers, slope_powers : ndarray of int, shape (K,)
        What one unit of a cluster is worth: a power of two.
    """

    levels: Floats
    curvatures: Floats
    curvature_powers: NDArray[np.int32]
    slopes: Floats
    slope_powers: NDArray[np.int32]

    @classmethod
    def of(cls, weights: Floats, means: Floats, variances: Floats) -> Self:
        """Round curvatures and slopes, cluster by cluster; levels follow from the rounded ones."""
        bits = _form_bits(means.shape[1])
        curvatures, powers = _rounded(0.5 / variances, bits)
        curvatures = np.maximum(curvatures, 1.0)
        slopes, slope_powers = _rounded(means / variances, bits)
        bent = np.ldexp(curvatures, powers[:, None])
        leaning = np.ldexp(slopes, slope_powers[:, None])
        heights = 0.5 * np.log(bent) - leaning * leaning / (4.0 * bent)
        with np.errstate(divide="ignore"):  # a cluster without samples is never the likeliest
            levels = np.log(weights) + [math.fsum(row) for row in heights]
        return cls(levels, curvatures, powers, slopes, slope_powers)

    def check(self, shape: tuple[int, int]) -> None:
        """Raise `ValueError` unless these are K parabolas of d columns, with exact products."""
        for part in (self.curvatures, self.slopes):
            require_whole(part, shape, _form_bits(shape[1]))
        powers = all(
            part.shape == shape[:1] and part.dtype == np.int32 and (np.abs(part) <= 200).all()
            for part in (self.curvature_powers, self.slope_powers)
        )
        level = self.levels.shape == shape[:1] and self.levels.dtype == np.float64
        if not (powers and level) or np.isnan(self.levels).any():
            raise ValueError("the parabolas of a mixture are out of place")


@dataclass(frozen=True)
class _Values:
    """Values on the grid and their squares, which are twice as long and hence cut in two."""

    plain: WholeMatrix
    upper: WholeMatrix
    lower: WholeMatrix
    n: int

    @classmethod
    def of(cls, values: Floats, device: str | None) -> Self:
        squares = values * values
        upper = np.floor(squares / 2.0**_BITS)
        squares -= upper * 2.0**_BITS
        plain, above, below = (WholeMatrix(part, device) for part in (values, upper, squares))
        return cls(plain, above, below, len(values))

    def mixture(self, shares: Floats) -> tuple[Floats, Floats, Floats]:
        """Return weights, means and variances of clusters that have these shares in samples."""
        bits = min(_SHARE_BITS, EXACT_BITS - _BITS - bits_of(self.n))
        whole = np.rint(np.ldexp(shares, bits))
        sizes = whole.sum(axis=0)
        parts = np.maximum(sizes, 1.0)[:, None]
        means = self.plain.weighed(whole) / parts
        squares = self.upper.weighed(whole) * 2.0**_BITS + self.lower.weighed(whole)
        return sizes / sizes.sum(), means, squares / parts - means * means

    def log_likelihoods(self, parabolas: Parabolas) -> Floats:
        """Return log(w_k) + log N(x; k), up to a constant, shape (n, K); products are exact."""
        curvatures, slopes = parabolas.curvatures.T, parabolas.slopes.T
        bent = self.upper.times(curvatures) * 2.0**_BITS + self.lower.times(curvatures)
        leaning = np.ldexp(self.plain.times(slopes), parabolas.slope_powers)
        found: Floats = parabolas.levels - np.ldexp(bent, parabolas.curvature_powers) + leaning
        return found


def _form_bits(n_columns: int) -> int:
    """Return how long curvatures and slopes may be."""
    return EXACT_BITS - _BITS - bits_of(n_columns)


def _rounded(numbers: Floats, bits: int) -> tuple[Floats, NDArray[np.int32]]:
    """Round rows to integers of this many bits, each row with a power of two."""
    powers = np.frexp(np.abs(numbers).max(axis=1))[1] - bits
    return np.rint(np.ldexp(numbers, -powers[:, None])) + 0.0, powers


def _shares(logs: Floats) -> tuple[Floats, float]:
    """Return the share of every cluster in every sample, and the mean log-likelihood."""
    most = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - most)
    sums = shares.sum(axis=1, keepdims=True)
    return shares / sums, math.fsum((np.log(sums) + most)[:, 0]) / len(logs)


def _likeliest(logs: Floats) -> Ints:
    return np.asarray(logs.argmax(axis=1), dtype=np.int64)
