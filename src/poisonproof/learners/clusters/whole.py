"""Samples as whole numbers, so that sums over samples have no rounding and hence no order.

Clusters of k-means and of mixtures come out of many rounds of sums over all samples. In floating
point such a sum depends on the order in which a library adds, which depends on the machine, on
threads and on the device, and one bit can send a sample to another cluster. Numbers on a grid with
few enough bits add up exactly, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.learners.devices import torch_on

__all__ = [
    "EXACT_BITS",
    "Grid",
    "WholeMatrix",
    "bits_of",
    "require_whole",
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
    """Return the exact sum of whole numbers, which float64 or int64 might not hold."""
    whole = numbers.astype(np.int64)
    return (int((whole >> 26).sum()) << 26) + int((whole & (2**26 - 1)).sum())


def require_whole(array: NDArray[Any], shape: tuple[int, ...], bits: int) -> None:
    """Raise `ValueError` unless an array from a file holds whole numbers of so many bits."""
    fits = (
        array.shape == shape
        and array.dtype == np.float64
        and bool((np.abs(array) <= 2.0**bits).all())
        and np.array_equal(array, np.rint(array))
    )
    if not fits:
        raise ValueError(f"whole numbers of shape {shape} are out of place")
