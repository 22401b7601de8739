"""Nearest class mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import Precision
from poisonproof.learners.closed_form.classifier import MAX_BYTES, WeightedClassifier
from poisonproof.learners.closed_form.linear_members import LinearMembers, linear_parts
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["NearestMeanClassifier", "class_means"]


class NearestMeanClassifier(WeightedClassifier):
    """The class whose mean is nearest, in Euclidean distance.

    Scores are ``<x, mean> - |mean|^2 / 2``, which order classes as the distance does.

    Parameters
    ----------
    precision : {"double", "single"}, default="double"
        Means and test rows are rounded to 25 bits of their length and multiplied in float64, or to
        11 bits and multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(float(NearestMeanClassifier().fit(X, y).score(X, y)), 2)
    0.93
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(self, *, precision: Precision = "double", max_bytes: int = MAX_BYTES) -> None:
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        """Nothing to check."""

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.rows, member.positions, member.weight
        means, _ = class_means(rows, y, weight)
        bias = -0.5 * np.square(means).sum(axis=1)
        return linear_parts(member.classes, means, bias, settings)


def class_means(
    X: NDArray[np.float64], y: NDArray[np.intp], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted mean (p, d) and the total weight (p,) of each class."""
    belongs = np.zeros((int(y.max()) + 1, len(y)))
    belongs[y, np.arange(len(y))] = weight
    totals = belongs.sum(axis=1)
    return (belongs @ X) / totals[:, np.newaxis], totals
