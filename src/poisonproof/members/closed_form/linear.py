"""Members that score a test row with one weight vector per class: ridge."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.closed_form.classifier import ClosedFormClassifier, MemberData
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


class RidgeClassifier(ClosedFormClassifier):
    """Linear regression with a ridge on labels coded as -1 and +1, one column per class.

    The same function as `sklearn.linear_model.RidgeClassifier`, up to rounding.

    Parameters
    ----------
    alpha : float, default=1.0
        Ridge. The constant has none.
    precision : {"double", "single"}, default="double"
        Weights and test rows are rounded to 25 bits of their length and multiplied in float64, or
        to 11 bits and multiplied in float32.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> float(RidgeClassifier().fit(X, y).score(X, y)) > 0.98
    True
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(self, alpha: float = 1.0, *, precision: Precision = "double") -> None:
        self.alpha = alpha
        self.precision = precision

    def _check_parameters(self) -> None:
        self._require_positive("alpha")

    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        rows, weight = member.X, member.weight
        targets = 2.0 * np.eye(len(member.classes))[member.y] - 1.0
        share = weight / weight.sum()
        centre, level = share @ rows, share @ targets
        root = np.sqrt(weight)[:, np.newaxis]
        scaled, targets = root * (rows - centre), root * (targets - level)
        weights = ridge_weights(scaled, targets, float(self.alpha))
        bias = level - centre @ weights
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            raise FloatingPointError(OVERFLOW)
        exact = exact_rows(weights.T, settings["precision"])
        arrays = {"values": exact.values, "exponents": exact.exponents, "bias": bias + 0.0}
        return MemberParts(member.classes, arrays)


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
