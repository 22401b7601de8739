"""Kernel ridge on columns that every member scales and weighs by itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.closed_form.classifier import MAX_BYTES, WeightedClassifier
from poisonproof.learners.closed_form.column_scales import UNIT, learn_scales
from poisonproof.learners.closed_form.kernel_members import integer_coefficients
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.scaled_members import KERNEL_EXPONENT, ScaledKernelMembers
from poisonproof.learners.closed_form.solve import positive_solve
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["ScaledKernelClassifier"]

# Keeps the system of centres solvable where two of them are the same row.
_JITTER = 1e-8
LEAST_GAMMA, LARGEST_GAMMA = 1e-30, 1e30


class ScaledKernelClassifier(WeightedClassifier):
    """Kernel ridge on raw tables: any units, constant columns, timestamps, missing values.

    The default member of `DPAClassifier`. It centres every column, divides it by its standard
    deviation and draws values in to three of these, then weighs it by how well it alone tells the
    classes apart (epsilon squared, the part of its variance that lies between the classes beyond
    chance). All of this is learned from the member's own partition. On the rows u, v so scaled,
    the kernel is ``exp(-gamma |u - v|^2) + <u, v>``: smooth where there are rows, linear beyond
    them. Its ridge regression on the one-hot labels has a constant without ridge.

    A missing value (NaN) counts as the column's mean, and as 1 in a column of its own that says
    that it was missing, where some rows of the partition miss it.

    Parameters
    ----------
    alpha : float, default=0.1
        Ridge.
    gamma : float, default=1.0
        How fast the kernel falls; an average row has length one.
    least_relevance : float, default=0.01
        What a column counts for that tells nothing about the classes; one that tells everything
        counts for 1 more.
    n_centers : int, default=500
        Rows of a partition that others are compared with. Of a larger partition evenly many rows
        in canonical order are taken; all rows take part in the fit.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.

    Guarantee
    ---------
    What a member sees of a test row is a function of its own partition and that row. It is rounded
    to integers, so products are exact and their bits depend on nothing else.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> float(ScaledKernelClassifier().fit(X, y).score(X, y)) > 0.98
    True
    """

    _members: ClassVar[type[StackedMembers]] = ScaledKernelMembers
    _takes_missing: ClassVar[bool] = True
    precision = "single"

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        gamma: float = 1.0,
        least_relevance: float = 0.01,
        n_centers: int = 500,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.alpha = alpha
        self.gamma = gamma
        self.least_relevance = least_relevance
        self.n_centers = n_centers
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        for name in ("alpha", "gamma", "least_relevance"):
            value = getattr(self, name)
            is_number = isinstance(value, (int, float, np.integer, np.floating))
            if not (is_number and 0 < value < np.inf):
                raise InvalidInputError(f"{name} must be positive and finite, but is {value!r}.")
        if not LEAST_GAMMA <= self.gamma <= LARGEST_GAMMA:
            raise InvalidInputError(
                f"gamma must lie between {LEAST_GAMMA:g} and {LARGEST_GAMMA:g}, for members vote "
                f"in single precision, but is {self.gamma!r}. Columns are scaled by each member, "
                "so useful values lie around 1."
            )
        if not (isinstance(self.n_centers, (int, np.integer)) and self.n_centers >= 1):
            raise InvalidInputError(
                f"n_centers must be an integer of at least 1, but is {self.n_centers!r}."
            )

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"lift": "none", "gamma": float(self.gamma)}

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        y, weight = member.positions, member.weight
        scales = learn_scales(member.rows, y, weight, float(self.least_relevance))
        values = scales.integers(member.rows)
        support = scales.support(values).astype(np.float64)
        targets = np.eye(len(member.present))[y]
        if len(y) <= self.n_centers:
            chosen = np.arange(len(y))
            dual, bias = self._solve_all(support, targets, weight)
        else:
            chosen = np.arange(self.n_centers) * len(y) // self.n_centers
            dual, bias = self._solve_centers(support, chosen, targets, weight)
        halves = np.full((1, len(chosen)), KERNEL_EXPONENT, dtype=np.int32)
        integers, power = integer_coefficients(dual[np.newaxis], halves, "single")
        coefficients = np.zeros((len(chosen), settings["n_classes"]))
        coefficients[:, member.present] = integers[0]
        level = np.zeros(settings["n_classes"])
        level[member.present] = bias
        return MemberParts(
            member.classes,
            {"values": values[chosen], "coefficients": coefficients},
            scales.arrays() | {"exponent": np.asarray(power[0]), "bias": level},
        )

    def _solve_all(
        self,
        support: NDArray[np.float64],
        targets: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return coefficients (m, p) that add up to zero, and the constant (p,)."""
        system = self._kernel(support, support)
        system[np.diag_indices(len(support))] += self.alpha / weight
        ones = np.ones((len(support), 1))
        solved = positive_solve(system, np.concatenate([targets, ones], axis=1))
        bias = solved[:, :-1].sum(axis=0) / solved[:, -1].sum()
        return solved[:, :-1] - solved[:, -1:] * bias, bias

    def _solve_centers(
        self,
        support: NDArray[np.float64],
        chosen: NDArray[np.intp],
        targets: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return coefficients of the chosen rows, fitted to all rows, and the constant."""
        centers = support[chosen]
        share = weight / weight.sum()
        system = self.alpha * self._kernel(centers, centers)
        right = np.zeros((len(chosen), targets.shape[1]))
        level = share @ targets
        mean = np.zeros(len(chosen))
        for start in range(0, len(support), len(chosen)):
            here = slice(start, start + len(chosen))
            kernel = self._kernel(support[here], centers)
            weighted = weight[here, np.newaxis] * kernel
            system += kernel.T @ weighted
            right += weighted.T @ (targets[here] - level)
            mean += share[here] @ kernel
        system -= weight.sum() * np.outer(mean, mean)
        system[np.diag_indices(len(chosen))] += _JITTER * weight.sum()
        dual = positive_solve(system, right)
        return dual, level - mean @ dual

    def _kernel(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernels of scaled rows, (len(left), len(right))."""
        inner = left @ right.T
        lengths = [np.einsum("ij,ij->i", rows, rows) for rows in (left, right)]
        apart = lengths[0][:, np.newaxis] + lengths[1] - 2 * inner
        kernel: NDArray[np.float64] = np.exp(apart * (-self.gamma / UNIT**2))
        return kernel + inner / UNIT**2
