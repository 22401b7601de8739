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
from poisonproof.learners.closed_form.kernels import Kernel, RowTerms, make_kernel
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
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
        return _KernelRows(rows, _kernel(settings).terms(rows, np.float64))

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        (fitted,) = self._fit_alike([member], settings)
        if isinstance(fitted, Exception):
            raise fitted
        return fitted

    def _fit_alike(
        self, members: Sequence[MemberRows], settings: dict[str, Any]
    ) -> list[MemberParts | Exception]:
        """Fit many small members with few calls: all arrays have the members as first axis.

        Every operation here works entry by entry, on integers, or on one member's matrix.
        """
        rows = _stacked([member.rows for member in members])
        root = np.sqrt(np.stack([member.weight for member in members]))[..., np.newaxis]
        positions = np.stack([member.positions for member in members])[..., np.newaxis]
        gram = exact_product(rows.exact, rows.exact).astype(np.float64)
        _kernel(settings).bounded(gram, rows.terms, rows.terms)
        exponents = rows.terms.exponents
        if exponents.any():
            np.ldexp(gram, exponents[..., np.newaxis] + exponents[:, np.newaxis], out=gram)
        # Weighted: solve for the coefficients divided by the root of the weight.
        gram *= root
        gram *= root.swapaxes(1, 2)
        targets = root * (positions == np.arange(len(members[0].present)))
        dual = np.zeros(targets.shape)
        errors: dict[int, Exception] = {}
        for index in range(len(members)):
            try:
                dual[index] = self._solve(gram[index], targets[index])
            except (np.linalg.LinAlgError, FloatingPointError) as error:
                errors[index] = error  # no system, or an infinite one: this member's own matter
        dual *= root
        integers, powers = integer_coefficients(dual, exponents, self.precision)
        return [
            errors[index]
            if index in errors
            else _kernel_parts(member, integers[index], powers[index], settings)
            for index, member in enumerate(members)
        ]

    def _solve(
        self, gram: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the dual coefficients (m, p) of one member."""
        alpha = self.alpha
        if alpha == "loo":
            alpha = best_alpha(gram, targets, self.alphas)
        np.einsum("ii->i", gram)[:] += float(alpha)
        return positive_solve(gram, targets)


def _kernel_parts(
    member: MemberRows,
    integers: NDArray[np.float64],
    power: np.int32,
    settings: dict[str, Any],
) -> MemberParts:
    coefficients = np.zeros((len(member.y), settings["n_classes"]))
    coefficients[:, member.present] = integers
    return MemberParts(
        member.classes,
        {
            "values": member.rows.exact.values,
            "exponents": member.rows.exact.exponents,
            "coefficients": coefficients,
        },
        {"exponent": np.asarray(power)},
    )


def _stacked(rows: Sequence[_KernelRows]) -> _KernelRows:
    return _KernelRows(
        ExactRows(
            np.stack([some.exact.values for some in rows]),
            np.stack([some.exact.exponents for some in rows]),
        ),
        RowTerms(
            np.stack([some.terms.factor for some in rows]),
            np.stack([some.terms.constant for some in rows]),
            np.stack([some.terms.exponents for some in rows]),
        ),
    )


def _kernel(settings: dict[str, Any]) -> Kernel:
    return make_kernel(**settings["kernel"])


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
