"""Samples as whole numbers, so that sums over samples have no rounding and hence no order.

Clusters of k-means and of mixtures come out of many rounds of sums over all samples. In floating
point such a sum depends on the order in which a library adds, which depends on the machine, on
threads and on the device, and one bit can send a sample to another cluster. Numbers on a grid with
few enough bits add up exactly, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.learners.devices import torch_on
from poisonproof.learners.parameters import is_count, is_number

__all__ = [
    "EXACT_BITS",
    "Grid",
    "WholeMatrix",
    "bits_of",
    "check_parameters",
    "sample_matrix",
    "total",
]

EXACT_BITS = 53
"""Whole numbers of up to this many bits, and sums that stay within, are exact in float64."""

Floats = NDArray[np.float64]

_LARGEST = np.finfo(np.float64).max
_FARTHEST = 1200  # exponents of float64, and the bits of a grid


@dataclass(frozen=True)
class Grid:
    """The whole numbers that stand for values, column by column.

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
    """A matrix of whole numbers that stays where it is multiplied.

    The caller sees to it that sums fit into `EXACT_BITS`; then the device only schedules, if its
    library adds products of entries in float64, in any order: no emulation by shorter numbers, no
    rows added before multiplying (Strassen).

    Parameters
    ----------
    values : ndarray of shape (n, d)
        Whole numbers in float64.
    device : str or None
        None multiplies with NumPy; "cpu", "cuda", ... with torch.
    """

    def __init__(self, values: Floats, device: str | None = None) -> None:
        self._device = device
        self._values: Any = values if device is None else self._there(values)

    def times(self, columns: Floats) -> Floats:
        """Return the product with `columns` of shape (d, k), shape (n, k)."""
        if self._device is None:
            found: Floats = self._values @ columns
            return found
        back: Floats = (self._values @ self._there(columns)).cpu().numpy()
        return back

    def weighed(self, weights: Floats) -> Floats:
        """Return the sums of all rows by `weights` of shape (n, k), shape (k, d)."""
        if self._device is None:
            found: Floats = weights.T @ self._values
            return found
        back: Floats = (self._there(weights).T @ self._values).cpu().numpy()
        return back

    def _there(self, array: Floats) -> Any:
        return torch_on(self._device, "float64").as_tensor(array, device=self._device)


def bits_of(count: int) -> int:
    """Return by how many bits a sum of `count` terms is longer than a term.

    >>> [bits_of(count) for count in (1, 2, 3, 512, 513)]
    [0, 1, 2, 9, 10]
    """
    return (count - 1).bit_length()


def total(numbers: Floats) -> int:
    """Return the exact sum of whole numbers, which float64 or int64 might not hold."""
    whole = numbers.astype(np.int64)
    return (int((whole >> 26).sum()) << 26) + int((whole & (2**26 - 1)).sum())


def sample_matrix(X: Any, n_columns: int | None = None) -> Floats:
    """Return samples as float64 of shape (n, d), or raise if they are none.

    Parameters
    ----------
    X : array of shape (n, d)
        Finite numbers.
    n_columns : int, optional
        Columns of the samples that clusters were learned from.
    """
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


def check_parameters(clusters: Any, n_samples: int) -> None:
    """Raise for parameters that are no counts, shares or seeds, and for too many clusters."""
    for name in ("n_clusters", "n_init", "max_iter"):
        value = getattr(clusters, name)
        if not is_count(value):
            raise InvalidInputError(f"{name} is a whole number, at least 1. Got {value!r}.")
    for name in ("tol", "floor"):
        value = getattr(clusters, name, 0.0)
        if not is_number(value) or not 0 <= value <= 1:
            raise InvalidInputError(f"{name} is a number from 0 to 1. Got {value!r}.")
    seed = clusters.random_state
    if isinstance(seed, bool) or not isinstance(seed, Integral) or int(seed) < 0:
        raise InvalidInputError(
            f"random_state is a whole number, at least 0, so that clusters are a function of it. "
            f"Got {seed!r}."
        )
    if clusters.n_clusters > n_samples:
        raise InvalidInputError(
            f"n_clusters={clusters.n_clusters} is more than the n_samples={n_samples} samples."
        )
