"""Ridge regression on the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from poisonproof.features.exact import Precision
from poisonproof.learners.closed_form.classifier import MAX_BYTES, WeightedClassifier
from poisonproof.learners.closed_form.kernel_ridge import check_alpha
from poisonproof.learners.closed_form.linear_members import LinearMembers, linear_parts
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.solve import best_alpha, ridge_weights
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["RidgeClassifier"]


class RidgeClassifier(WeightedClassifier):
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

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.rows, member.positions, member.weight
        targets = 2.0 * np.eye(len(member.present))[y] - 1.0
        centre, level = np.zeros(rows.shape[1]), np.zeros(len(member.present))
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
        return linear_parts(member.classes, weights.T, bias, settings)
