"""Kernel ridge regression on the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, Precision, exact_product, exact_rows
from poisonproof.learners.closed_form.classifier import MAX_BYTES, WeightedClassifier
from poisonproof.learners.closed_form.kernel_members import KernelMembers, integer_coefficients
from poisonproof.learners.closed_form.kernels import RowTerms, make_kernel
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.solve import best_alpha, positive_solve
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["KernelRidgeClassifier", "check_alpha"]


class KernelRidgeClassifier(WeightedClassifier):
    """Ridge regression on the one-hot labels in the feature space of a kernel.

    Scores are ``K(x, rows) (K(rows, rows) + alpha I)^-1 Y``; the largest wins, the smaller class
    on ties. As the members of an ensemble, all partitions share one test-to-train kernel matrix,
    so asking k members costs little more than asking one.

    Parameters
    ----------
    kernel : {"rbf", "linear", "polynomial", "cosine"}, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``<x, y>``, ``(gamma <x, y> + coef0)^degree`` or the cosine.
    gamma : float or None, default=1.0
        Scale of the rbf and polynomial kernels; None is one over the number of features.
    coef0 : float, default=1.0
        Constant of the polynomial kernel.
    degree : int, default=3
        Degree of the polynomial kernel.
    alpha : float or "loo", default=0.1
        Ridge. With "loo" every member takes the one of `alphas` that has the smallest
        leave-one-out error on its own partition.
    alphas : sequence of float, default=(0.01, 0.1, 1.0, 10.0)
        Candidates for ``alpha="loo"``.
    precision : {"double", "single"}, default="double"
        Rows are rounded to 25 bits of their length and multiplied in float64, or to 11 bits and
        multiplied in float32, which is twice as fast. See `poisonproof.features.exact_rows`.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> float(KernelRidgeClassifier(gamma=0.1).fit(X, y).score(X, y)) > 0.97
    True
    """

    _members: ClassVar[type[StackedMembers]] = KernelMembers

    def __init__(
        self,
        kernel: str = "rbf",
        *,
        gamma: float | None = 1.0,
        coef0: float = 1.0,
        degree: int = 3,
        alpha: float | Literal["loo"] = 0.1,
        alphas: Sequence[float] = (0.01, 0.1, 1.0, 10.0),
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.alpha = alpha
        self.alphas = alphas
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        check_alpha(self.alpha, self.alphas)
        make_kernel(**self._kernel_settings(1))

    def _kernel_settings(self, n_features: int) -> dict[str, Any]:
        gamma = 1.0 / max(n_features, 1) if self.gamma is None else self.gamma
        return {
            "name": self.kernel,
            "gamma": gamma,
            "coef0": self.coef0,
            "degree": self.degree,
        }

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"lift": "none", "kernel": self._kernel_settings(n_features)}

    def _prepare(self, X: NDArray[np.float64], settings: dict[str, Any]) -> _KernelRows:
        rows = exact_rows(X, settings["precision"])
        # Ridges may be small, so the system is set up in float64 whatever the precision of votes.
        return _KernelRows(rows, make_kernel(**settings["kernel"]).terms(rows, np.float64))

    def _fit_rows(
        self,
        rows: _KernelRows,
        y: NDArray[np.intp],
        weight: NDArray[np.float64],
        classes: NDArray[np.int16],
        settings: dict[str, Any],
    ) -> MemberParts:
        gram = exact_product(rows.exact, rows.exact).astype(np.float64)
        make_kernel(**settings["kernel"]).bounded(gram, rows.terms, rows.terms)
        exponents = rows.terms.exponents
        gram = np.ldexp(gram, exponents[:, np.newaxis] + exponents)
        # Weighted: solve for the coefficients divided by the root of the weight.
        root = np.sqrt(weight)
        gram *= root[:, np.newaxis]
        gram *= root
        targets = root[:, np.newaxis] * np.eye(len(classes))[y]
        if not np.isfinite(gram).all():
            raise FloatingPointError("the kernel overflows")
        alpha = self.alpha
        if alpha == "loo":
            alpha = best_alpha(gram, targets, self.alphas)
        gram[np.diag_indices(len(gram))] += float(alpha)
        dual = root[:, np.newaxis] * positive_solve(gram, targets)
        integers, exponent = integer_coefficients(dual, exponents, self.precision)
        coefficients = np.zeros((len(y), settings["n_classes"]))
        coefficients[:, classes] = integers
        return MemberParts(
            classes,
            {
                "values": rows.exact.values,
                "exponents": rows.exact.exponents,
                "coefficients": coefficients,
            },
            {"exponent": np.asarray(exponent)},
        )


@dataclass(frozen=True)
class _KernelRows:
    """Training rows as integers, and what the kernel needs of each."""

    exact: ExactRows
    terms: RowTerms

    def __getitem__(self, rows: Any) -> _KernelRows:
        return _KernelRows(self.exact[rows], self.terms[rows])


def check_alpha(alpha: Any, alphas: Sequence[float]) -> None:
    """Raise unless `alpha` is a positive number or "loo" with positive candidates."""
    numbers = list(alphas) if isinstance(alpha, str) and alpha == "loo" else [alpha]
    for number in numbers:
        is_number = isinstance(number, (int, float, np.integer, np.floating))
        if not (is_number and 0 < number < np.inf):
            raise InvalidInputError(
                "alpha must be a positive number, or 'loo' with positive candidates in alphas, "
                f"but alpha={alpha!r} and alphas={alphas!r}."
            )
    if not numbers:
        raise InvalidInputError("alpha='loo' needs at least one candidate in alphas.")
