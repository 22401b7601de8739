"""Kernels of integer rows, computed entry by entry from their exact inner products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.exact import ExactRows

__all__ = ["KERNELS", "Kernel", "RowTerms", "make_kernel"]

KERNELS = ("linear", "rbf", "polynomial", "cosine")


@dataclass(frozen=True)
class RowTerms:
    """What a kernel needs to know of each row beside the inner products.

    Attributes
    ----------
    factor, constant : ndarray of shape (n,), or (g, n) for g stacks of rows
        Enter the kernel entry by entry.
    exponents : ndarray of int32, likewise
        ``2.0 ** exponents`` is at least the square root of the kernel of a row with itself, so
        kernels divided by both rows' powers lie in [-1, 1].
    """

    factor: NDArray[Any]
    constant: NDArray[Any]
    exponents: NDArray[np.int32]

    def __getitem__(self, rows: Any) -> RowTerms:
        return RowTerms(self.factor[rows], self.constant[rows], self.exponents[rows])


class Kernel(ABC):
    """A positive semi-definite function of two rows."""

    @abstractmethod
    def terms(self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None) -> RowTerms:
        """Return what `bounded` needs of each row, in the dtype of the products."""

    @abstractmethod
    def bounded(self, products: NDArray[Any], left: RowTerms, right: RowTerms) -> None:
        """Turn inner products into kernels divided by both rows' powers of two, in place."""


@dataclass(frozen=True)
class _Polynomial(Kernel):
    """``(gamma <x, y> + coef0) ** degree``; the linear kernel is (1 <x, y> + 0) ** 1."""

    gamma: float
    coef0: float
    degree: int

    def terms(self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None) -> RowTerms:
        length = np.sqrt(rows.square_lengths()) * np.sqrt(self.gamma)
        root = np.sqrt(self.coef0)
        # Powers of two stay exponents until the end: a row may be 1e-200 or 1e200 long.
        mantissa, power = np.frexp(length)
        power = np.where(mantissa > 0, power + rows.exponents, -(2**20))
        if self.coef0 > 0:
            # The sum of two squares, each below 4^power, is below 4^(power + 1).
            power = np.maximum(power, np.frexp(root)[1]) + 1
        power = np.where(power < -(2**19), 0, power)
        factor = np.ldexp(np.sqrt(self.gamma), rows.exponents - power)
        constant = np.ldexp(root, -power)
        exponents = (self.degree * power).astype(np.int32)
        return _terms(factor, constant, exponents, dtype or rows.values.dtype)

    def bounded(self, products: NDArray[Any], left: RowTerms, right: RowTerms) -> None:
        products *= left.factor[..., np.newaxis]
        products *= right.factor[..., np.newaxis, :]
        if self.coef0 > 0:
            products += left.constant[..., np.newaxis] * right.constant[..., np.newaxis, :]
        if self.degree > 1:
            base = products.copy()
            for _ in range(self.degree - 1):
                products *= base
        np.clip(products, -1, 1, out=products)


@dataclass(frozen=True)
class _Cosine(Kernel):
    """The inner product of rows scaled to length one; zero for a zero row."""

    def terms(self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None) -> RowTerms:
        length = np.sqrt(rows.square_lengths())
        factor = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
        nothing = np.zeros(len(rows), dtype=np.int32)
        return _terms(factor, np.zeros(len(rows)), nothing, dtype or rows.values.dtype)

    def bounded(self, products: NDArray[Any], left: RowTerms, right: RowTerms) -> None:
        products *= left.factor[..., np.newaxis]
        products *= right.factor[..., np.newaxis, :]
        np.clip(products, -1, 1, out=products)


@dataclass(frozen=True)
class _Gaussian(Kernel):
    """``exp(-gamma |x - y|^2)``."""

    gamma: float

    def terms(self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None) -> RowTerms:
        factor = np.ldexp(np.sqrt(self.gamma), rows.exponents)
        constant = factor * factor * rows.square_lengths()
        if not (constant < 1e30).all():
            raise InvalidRowsError(
                "A row is too long for the rbf kernel: gamma |x|^2 must stay below 1e30. Scale "
                "the features, for example with FixedScale, or use a smaller gamma."
            )
        nothing = np.zeros(len(rows), dtype=np.int32)
        return _terms(factor, constant, nothing, dtype or rows.values.dtype)

    def bounded(self, products: NDArray[Any], left: RowTerms, right: RowTerms) -> None:
        products *= 2 * left.factor[..., np.newaxis]
        products *= right.factor[..., np.newaxis, :]
        products -= left.constant[..., np.newaxis]
        products -= right.constant[..., np.newaxis, :]
        np.minimum(products, 0, out=products)
        np.exp(products, out=products)


def _terms(
    factor: NDArray[np.float64],
    constant: NDArray[np.float64],
    exponents: NDArray[np.int32],
    dtype: Any,
) -> RowTerms:
    return RowTerms(factor.astype(dtype), constant.astype(dtype), exponents)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))


@cache
def make_kernel(name: str, gamma: float, coef0: float, degree: int) -> Kernel:
    """Return a kernel by name, after checking its parameters."""
    if name not in KERNELS:
        raise InvalidInputError(f"kernel must be one of {KERNELS}, but is {name!r}.")
    if not (_is_number(gamma) and gamma > 0 and np.isfinite(gamma)):
        raise InvalidInputError(f"gamma must be positive and finite, but is {gamma!r}.")
    if not (_is_number(coef0) and coef0 >= 0 and np.isfinite(coef0)):
        raise InvalidInputError(f"coef0 must be zero or positive and finite, but is {coef0!r}.")
    if not (isinstance(degree, (int, np.integer)) and 1 <= degree <= 10):
        raise InvalidInputError(f"degree must be an integer from 1 to 10, but is {degree!r}.")
    if name == "rbf":
        return _Gaussian(float(gamma))
    if name == "cosine":
        return _Cosine()
    if name == "linear":
        return _Polynomial(1.0, 0.0, 1)
    return _Polynomial(float(gamma), float(coef0), int(degree))
