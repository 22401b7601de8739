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

__all__ = ["EXACT_BITS", "Grid", "WholeMatrix", "bits_of", "total"]

EXACT_BITS = 53
"""Whole numbers of up to this many bits, and sums that stay within, are exact in float64."""

Floats = NDArray[np.float64]


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
    exponents: NDArray[np.int64]
    bits: int

    @classmethod
    def around(cls, X: Floats, bits: int, *, same_step: bool) -> Self:
        """Return the finest grid for the samples `X`: with one step for all columns, or for each.

        The largest and the smallest value decide: no sum, so no order.
        """
        low, high = X.min(axis=0), X.max(axis=0)
        middle = low / 2 + high / 2
        reach = np.maximum(high - middle, middle - low)
        if same_step:
            reach = np.full_like(reach, reach.max())
        exponents = np.where(reach > 0, np.frexp(reach)[1] - bits, 0)
        return cls(middle, exponents.astype(np.int64), bits)

    def place(self, X: Floats) -> Floats:
        """Round rows, each by itself; what lies beyond the samples is moved to the edge."""
        edge = 2.0**self.bits
        with np.errstate(over="ignore"):
            placed = np.ldexp(X - self.middle, -self.exponents)
        np.clip(placed, -edge, edge, out=placed)
        np.rint(placed, out=placed)
        placed += 0.0  # one zero
        return placed


class WholeMatrix:
    """A matrix of whole numbers that stays where it is multiplied.

    The caller sees to it that sums fit into `EXACT_BITS`; then the device only schedules.

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
        return torch_on(self._device).as_tensor(array, device=self._device)


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
