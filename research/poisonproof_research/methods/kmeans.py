"""k-means on samples as integers: sums over samples have no rounding and hence no order.

Clusters of k-means and of mixtures come out of many rounds of sums over all samples. In floating
point such a sum depends on the order in which a library adds, which depends on the machine, on
threads and on the device, and one bit can send a sample to another cluster. Numbers on a grid with
few enough bits add up exactly, in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.estimators.certifying import check_random_state
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.scikit import is_count, is_number
from poisonproof.members.similarity import torch_on

EXACT_BITS = 53
"""Whole numbers of up to this many bits, and sums that stay within, are exact in float64."""

Floats = NDArray[np.float64]

_LARGEST = np.finfo(np.float64).max
_FARTHEST = 1200  # exponents of float64, and the bits of a grid


@dataclass(frozen=True)
class Grid:
    """The integers that stand for values, column by column.

    Attributes
    ----------
    middle : ndarray of shape (d,)
        What 0 stands for.
    exponents : ndarray of int, shape (d,)
        A step is worth ``2.0 ** exponents``.
    bits : int
        Numbers reach from -2^bits to 2^bits.
    """

    middle: Floats
    exponents: NDArray[np.int32]
    bits: int

    @classmethod
    def around(cls, X: Floats, bits: int) -> Self:
        """Return the finest grid that holds all samples, with the same step for all columns.

        The largest and the smallest value decide: no sum, so no order.
        """
        low, high = X.min(axis=0), X.max(axis=0)
        middle = low / 2 + high / 2
        reach = np.maximum(high - middle, middle - low).max()
        return cls(middle, np.full(len(middle), _exponent(reach, bits)), bits)

    @classmethod
    def of_columns(cls, X: Floats, bits: int, room: int) -> Self:
        """Return a grid around the median of every column.

        The middle nine tenths of a column are between 2^(bits - room - 1) and 2^(bits - room) steps
        wide, so that a few far values do not make it coarse; if all those are equal, all values
        are. Order statistics decide: no sum, so no order.
        """
        last = len(X) - 1
        tail = last // 20
        ranked = np.partition(X, sorted({0, tail, last // 2, last - tail, last}), axis=0)
        low, high = ranked[tail], ranked[last - tail]
        narrow = low == high
        low, high = np.where(narrow, ranked[0], low), np.where(narrow, ranked[last], high)
        width = 2.0 * (high / 2 - low / 2).clip(max=_LARGEST / 2)
        return cls(ranked[last // 2], _exponent(width, bits - room), bits)

    def place(self, X: Floats) -> Floats:
        """Round rows, each by itself; what lies beyond the grid is moved to its edge."""
        edge = 2.0**self.bits
        with np.errstate(over="ignore"):
            placed = np.ldexp(X - self.middle, -self.exponents)
        np.clip(placed, -edge, edge, out=placed)
        np.rint(placed, out=placed)
        placed += 0.0  # one zero
        return placed

    def check(self, bits: int) -> None:
        """Raise `ValueError` unless this is such a grid, for what a file may hold."""
        fits = (
            self.bits == bits
            and self.middle.ndim == 1
            and self.middle.shape == self.exponents.shape
            and self.exponents.dtype == np.int32
            and np.isfinite(self.middle).all()
            and (np.abs(self.exponents) <= _FARTHEST).all()
        )
        if not fits:
            raise ValueError("a grid is out of place")


def _exponent(reach: Any, bits: int) -> Any:
    """Return the exponent of the step with which `reach` is at most 2^bits; 0 for no reach."""
    return np.where(reach > 0, np.frexp(reach)[1] - bits, 0).astype(np.int32)


class WholeMatrix:
    """A matrix of integers that stays where it is multiplied.

    The caller sees to it that sums fit into `EXACT_BITS`; then the device only schedules, if its
    library adds products of entries in float64, in any order: no emulation by shorter numbers, no
    rows added before multiplying (Strassen).

    Parameters
    ----------
    values : ndarray of shape (n, d)
        Integers in float64.
    device : str or None
        None multiplies with NumPy; "cpu", "cuda", ... with torch.
    """

    def __init__(self, values: Floats, device: str | None = None) -> None:
        self._device = device
        self._torch = None if device is None else torch_on(device, "float64")
        self._values = self._there(values)

    def times(self, columns: Floats) -> Floats:
        """Return the product with `columns` of shape (d, k), shape (n, k)."""
        return self._here(self._values @ self._there(columns))

    def weighed(self, weights: Floats) -> Floats:
        """Return the sums of all rows by `weights` of shape (n, k), shape (k, d)."""
        return self._here(self._there(weights).T @ self._values)

    def _there(self, array: Floats) -> Any:
        return array if self._torch is None else self._torch.as_tensor(array, device=self._device)

    def _here(self, found: Any) -> Floats:
        array: Floats = found if self._torch is None else found.cpu().numpy()
        return array


def bits_of(count: int) -> int:
    """Return by how many bits a sum of `count` terms is longer than a term.

    >>> [bits_of(count) for count in (1, 2, 3, 512, 513)]
    [0, 1, 2, 9, 10]
    """
    return (count - 1).bit_length()


def total(numbers: Floats) -> int:
    """Return the exact sum of integers, which float64 or int64 might not hold."""
    whole = numbers.astype(np.int64)
    return (int((whole >> 26).sum()) << 26) + int((whole & (2**26 - 1)).sum())


def require_whole(array: NDArray[Any], shape: tuple[int, ...], bits: int) -> None:
    """Raise `ValueError` unless an array from a file holds integers of so many bits."""
    fits = (
        array.shape == shape
        and array.dtype == np.float64
        and bool((np.abs(array) <= 2.0**bits).all())
        and np.array_equal(array, np.rint(array))
    )
    if not fits:
        raise ValueError(f"integers of shape {shape} are out of place")


# What clusterers check, and what those in integers share.


class WholeClusters(ClusterMixin, BaseEstimator, ABC):
    """Base class: samples become integers on a grid, and a subclass learns from those."""

    rowwise: ClassVar[bool] = True
    """The cluster of a new sample does not depend on the samples beside it."""

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
            raise InvalidInputError(f"{name} is an integer of at least 1. Got {value!r}.")
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


# k-means in integers: the same clusters on every machine and device.

Ints = NDArray[np.int64]

_FINEST = 24  # bits of a number: as many as float32 keeps


class KMeansClusters(WholeClusters):
    """Round clusters: every sample belongs to the nearest of K means (Lloyd, 1982).

    Samples and means lie on a grid of integers (24 bits for up to 8 columns, 20 for up to
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
