"""A mixture of Gaussians whose sums are whole numbers: the same clusters on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters.kmeans import KMeansClusters, require_counts
from poisonproof.learners.clusters.whole import EXACT_BITS, Grid, WholeMatrix, bits_of

__all__ = ["MixtureClusters"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BITS = 16  # of a value; of the two halves of its square
_SHARE_BITS = 20  # of the share of a cluster in a sample
_CONSTANT = 4.0 ** (_BITS - 10)  # variance of a column that has none: 1/1024 of its reach, squared
_WIDEST = 2**15  # columns: curvatures keep 22 bits


class MixtureClusters(ClusterMixin, BaseEstimator):
    """Clusters of any extent along the axes: a mixture of Gaussians with diagonal covariance.

    Expectation and maximisation by turns (Dempster, Laird and Rubin, 1977), from clusters of
    `KMeansClusters`. Values are rounded to 16 bits of what their column reaches, shares to 20
    bits, curvatures to as many as leave every sum over columns and over samples exact. A new sample
    takes the likeliest cluster.

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
    floor : float, default=0.3
        Least variance of a cluster in a column, as a share of the column's: a column in which a
        cluster is flat by chance would decide alone. 0.3 was best on the digits of scikit-learn.
    device : str, optional
        "cuda" multiplies on a GPU, with the same result.
    random_state : int, default=0
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (K,)
        Shares of the clusters in all samples.
    means_, variances_ : ndarray of shape (K, d)
        The Gaussians, in steps of the grid.
    labels_ : ndarray of shape (m,)
        The cluster of every sample.

    Guarantee
    ---------
    `labels_` is a function of the samples in their order and of the parameters but `device`;
    `predict` of one row and the fitted mixture.

    Assumes
    -------
    Exponentials and logarithms of NumPy are the same wherever results are compared.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found = MixtureClusters(2).fit(X).predict(X)
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """

    rowwise: ClassVar[bool] = True
    """The cluster of a new sample does not depend on what is asked with it."""

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        floor: float = 0.3,
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the clusters of the samples `X`, shape (m, d); `y` is not looked at."""
        X = np.asarray(X, dtype=np.float64)
        require_counts(self, ("n_clusters", "n_init", "max_iter"), len(X))
        if X.shape[1] > _WIDEST:
            raise InvalidInputError(
                f"A mixture takes up to {_WIDEST} columns. Got {X.shape[1]}: map them to fewer, or "
                "take clusterer='kmeans'."
            )
        start = KMeansClusters(
            self.n_clusters,
            n_init=self.n_init,
            device=self.device,
            random_state=self.random_state,
        ).fit(X)
        self.grid_ = Grid.around(X, _BITS, same_step=False)
        samples = _Values.of(self.grid_.place(X), self.device)
        floors = np.maximum(self.floor * samples.mixture(np.ones((len(X), 1)))[2], _CONSTANT)
        shares = (start.labels_[:, None] == np.arange(self.n_clusters)).astype(np.float64)
        likelihood = -math.inf
        for _ in range(self.max_iter):
            self.weights_, self.means_, variances = samples.mixture(shares)
            self.variances_ = np.maximum(variances, floors)
            logs = samples.log_likelihoods(self.weights_, self.means_, self.variances_)
            before, (shares, likelihood) = likelihood, _shares(logs)
            if likelihood - before < self.tol:
                break
        self.labels_ = _likeliest(logs)
        return self

    def predict(self, X: Any) -> Ints:
        """Return the likeliest cluster of every row, the first of equally likely ones."""
        values = _Values.of(self.grid_.place(np.asarray(X, dtype=np.float64)), None)
        return _likeliest(values.log_likelihoods(self.weights_, self.means_, self.variances_))


@dataclass(frozen=True)
class _Values:
    """Values on the grid and their squares, which are twice as long and hence cut in two."""

    plain: WholeMatrix
    upper: WholeMatrix
    lower: WholeMatrix
    n: int
    d: int

    @classmethod
    def of(cls, values: Floats, device: str | None) -> Self:
        squares = values * values
        upper = np.floor(squares / 2.0**_BITS)
        squares -= upper * 2.0**_BITS
        plain, above, below = (WholeMatrix(part, device) for part in (values, upper, squares))
        return cls(plain, above, below, *values.shape)

    def mixture(self, shares: Floats) -> tuple[Floats, Floats, Floats]:
        """Return weights, means and variances of clusters that have these shares in samples."""
        bits = min(_SHARE_BITS, EXACT_BITS - _BITS - bits_of(self.n))
        whole = np.rint(np.ldexp(shares, bits))
        sizes = whole.sum(axis=0)
        parts = np.maximum(sizes, 1.0)[:, None]
        means = self.plain.weighed(whole) / parts
        squares = self.upper.weighed(whole) * 2.0**_BITS + self.lower.weighed(whole)
        return sizes / sizes.sum(), means, squares / parts - means * means

    def log_likelihoods(self, weights: Floats, means: Floats, variances: Floats) -> Floats:
        """Return log(w_k) + log N(x; k), up to a constant, shape (n, K).

        The exponent of a Gaussian is a parabola in every column. Its curvatures and slopes are
        rounded to whole numbers, cluster by cluster, so that their products with values and
        squares are exact; its top follows from the rounded ones.
        """
        bits = EXACT_BITS - _BITS - bits_of(self.d)
        curvatures, units = _rounded(0.5 / variances, bits)
        slopes, slope_units = _rounded(means / variances, bits)
        bent = self.upper.times(curvatures.T) * 2.0**_BITS + self.lower.times(curvatures.T)
        leaning = self.plain.times(slopes.T)
        tops = (np.ldexp(slopes, slope_units[:, None]) ** 2) / (
            4.0 * np.ldexp(curvatures, units[:, None])
        )
        with np.errstate(divide="ignore"):  # a cluster without samples is never the likeliest
            level = np.log(weights) - 0.5 * np.log(variances).sum(axis=1) - tops.sum(axis=1)
        found: Floats = level - np.ldexp(bent, units) + np.ldexp(leaning, slope_units)
        return found


def _rounded(numbers: Floats, bits: int) -> tuple[Floats, NDArray[np.int32]]:
    """Round rows to whole numbers of this many bits, each row with a power of two."""
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
