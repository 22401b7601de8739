"""Members that score a test row with one weight vector per class: ridge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.closed_form.classifier import (
    MAX_BYTES,
    ClosedFormClassifier,
    MemberData,
    best_alpha,
    check_alpha,
)
from poisonproof.members.closed_form.scaled_kernel import OVERFLOW, positive_solve
from poisonproof.members.closed_form.stacked import MemberParts, StackedMembers, Visit


class LinearMembers(StackedMembers):
    """Linear classifiers: one weight vector and one constant per member and class."""

    kind: ClassVar[str] = "linear"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        return cls._like_exact(settings, bias=np.empty(0))

    def _score_chunk(self, queries: ExactRows, visit: Visit) -> None:
        scales, bias = np.ldexp(1.0, self.rows["exponents"]), self.rows["bias"]
        query_scales = queries.scales
        scores = np.empty((self._tile_rows(), len(queries)))
        for tile, here, products in self._products(queries):
            found = np.multiply(products, scales[here, np.newaxis], out=scores[: len(products)])
            found *= query_scales
            found += bias[here, np.newaxis]
            visit(tile, found)

    def _tile_rows(self) -> int:
        # A member has at most one row per class and must lie within one tile.
        return max(256, int(self.settings["n_classes"]))


class RidgeClassifier(ClosedFormClassifier):
    """Linear regression with a ridge on labels coded as -1 and +1, one column per class.

    The same function as `sklearn.linear_model.RidgeClassifier`, up to rounding.

    Parameters
    ----------
    alpha : float or "loo", default=1.0
        Ridge. With "loo" every member takes the one of `alphas` that has the smallest
        leave-one-out error on its own partition.
    alphas : sequence of float, default=(0.01, 0.1, 1.0, 10.0)
        Candidates for ``alpha="loo"``.
    fit_intercept : bool, default=True
        Whether to add a constant without ridge.
    precision : {"double", "single"}, default="double"
        Weights and test rows are rounded to 25 bits of their length and multiplied in float64, or
        to 11 bits and multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> float(RidgeClassifier().fit(X, y).score(X, y)) > 0.98
    True
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(
        self,
        alpha: float | Literal["loo"] = 1.0,
        *,
        alphas: Sequence[float] = (0.01, 0.1, 1.0, 10.0),
        fit_intercept: bool = True,
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.alpha = alpha
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        check_alpha(self.alpha, self.alphas)

    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.X, member.y, member.weight
        targets = 2.0 * np.eye(len(member.classes))[y] - 1.0
        centre, level = np.zeros(rows.shape[1]), np.zeros(len(member.classes))
        leverage = np.zeros(len(y))
        if self.fit_intercept:
            share = weight / weight.sum()
            centre, level, leverage = share @ rows, share @ targets, share
        root = np.sqrt(weight)[:, np.newaxis]
        scaled, targets = root * (rows - centre), root * (targets - level)
        alpha = self.alpha
        if alpha == "loo":
            alpha = best_alpha(scaled @ scaled.T, targets, self.alphas, leverage)
        weights = ridge_weights(scaled, targets, float(alpha))
        bias = level - centre @ weights
        return _linear_parts(member.classes, weights.T, bias, settings)


def _linear_parts(
    classes: NDArray[np.int16],
    weights: NDArray[np.float64],
    bias: NDArray[np.float64],
    settings: dict[str, Any],
) -> MemberParts:
    """Return a linear member: `weights` (p, columns) and `bias` (p,) of its classes."""
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise FloatingPointError(OVERFLOW)
    rows = exact_rows(weights, settings["precision"])
    return MemberParts(
        classes,
        {"values": rows.values, "exponents": rows.exponents, "bias": bias + 0.0},
    )


def ridge_weights(
    rows: NDArray[np.float64], targets: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Return the weights (d, p) that minimise ``|rows w - targets|^2 + alpha |w|^2``."""
    n, d = rows.shape
    if n <= d:
        gram = rows @ rows.T
        gram[np.diag_indices(n)] += alpha
        weights: NDArray[np.float64] = rows.T @ positive_solve(gram, targets)
        return weights
    scatter = rows.T @ rows
    scatter[np.diag_indices(d)] += alpha
    return positive_solve(scatter, rows.T @ targets)
