"""Linear discriminant analysis with a shrunken covariance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import Precision
from poisonproof.learners.closed_form.classifier import MAX_BYTES, UnweightedClassifier
from poisonproof.learners.closed_form.linear_members import LinearMembers, linear_parts
from poisonproof.learners.closed_form.nearest_mean import class_means
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.solve import positive_solve
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["LinearDiscriminantClassifier"]


class LinearDiscriminantClassifier(UnweightedClassifier):
    """Gaussian classes with one common covariance, drawn towards a multiple of the identity.

    The covariance is ``(1 - shrinkage) S + shrinkage tr(S) / d I``, S that of the rows around
    their class means. The same function as `sklearn.discriminant_analysis.
    LinearDiscriminantAnalysis` with ``solver="lsqr"`` and a fixed shrinkage, up to rounding. Where
    every class has a single row S is zero, and the identity takes its place.

    Parameters
    ----------
    shrinkage : float, default=0.5
        Above 0, up to 1.
    precision : {"double", "single"}, default="double"
        Weights and test rows are rounded to 25 bits of their length and multiplied in float64, or
        to 11 bits and multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> float(LinearDiscriminantClassifier(shrinkage=0.1).fit(X, y).score(X, y)) > 0.95
    True
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(
        self,
        shrinkage: float = 0.5,
        *,
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.shrinkage = shrinkage
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        if not 0 < self.shrinkage <= 1:
            raise InvalidInputError(
                f"shrinkage must be above 0 and at most 1, but is {self.shrinkage!r}."
            )

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.rows, member.positions, member.weight
        means, totals = class_means(rows, y, weight)
        centred = rows - means[y]
        spread = float(np.square(centred).sum()) / (len(y) * rows.shape[1])
        if spread > 0:
            ridge = self.shrinkage * spread
            weights = _inverse_times(centred, (1 - self.shrinkage) / len(y), ridge, means)
        else:
            weights = means
        priors = np.log(totals / len(y))
        bias = priors - 0.5 * (means * weights).sum(axis=1)
        return linear_parts(member.classes, weights, bias, settings)


def _inverse_times(
    centred: NDArray[np.float64], share: float, ridge: float, means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``(ridge I + share Z'Z)^-1 means``, through the smaller of ZZ' and Z'Z."""
    n, d = centred.shape
    if n > d:
        covariance = share * (centred.T @ centred)
        covariance[np.diag_indices(d)] += ridge
        return positive_solve(covariance, means.T).T
    # Woodbury: the part of the means that lies in the span of the rows is corrected.
    small = share * (centred @ centred.T)
    small[np.diag_indices(n)] += ridge
    inside = positive_solve(small, centred @ means.T)
    corrected: NDArray[np.float64] = (means - share * (inside.T @ centred)) / ridge
    return corrected
