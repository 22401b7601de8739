"""Naive Bayes with Gaussian and with yes-or-no features."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import Precision
from poisonproof.learners.closed_form.classifier import MAX_BYTES, WeightedClassifier
from poisonproof.learners.closed_form.linear_members import LinearMembers, linear_parts
from poisonproof.learners.closed_form.nearest_mean import class_means
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["BernoulliNaiveBayes", "GaussianNaiveBayes"]


class GaussianNaiveBayes(WeightedClassifier):
    """Every feature is Gaussian within every class, independent of the others.

    The log-likelihood is linear in the features and their squares, so all members are asked by one
    product. That form needs variances that are not tiny against the features themselves:
    scale them, for example with `FixedScale`.

    Parameters
    ----------
    var_smoothing : float, default=0.1
        Share of the partition's largest variance that is added to all variances, at least 1e-6.
        Partitions are small, so this is larger than scikit-learn's.
    precision : {"double", "single"}, default="double"
        Weights and test rows are rounded to 25 bits of their length and multiplied in float64, or
        to 11 bits and multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> float(GaussianNaiveBayes(var_smoothing=1e-3).fit(X, y).score(X, y)) > 0.94
    True
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(
        self,
        var_smoothing: float = 0.1,
        *,
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.var_smoothing = var_smoothing
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        if not 1e-6 <= self.var_smoothing < np.inf:
            raise InvalidInputError(
                f"var_smoothing must be at least 1e-6 and finite, but is {self.var_smoothing!r}."
            )

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"lift": "squares"}

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.rows, member.positions, member.weight
        means, totals = class_means(rows, y, weight)
        within, _ = class_means(np.square(rows - means[y]), y, weight)
        overall, _ = class_means(rows, np.zeros_like(y), weight)
        largest = class_means(np.square(rows - overall[0]), np.zeros_like(y), weight)[0].max()
        variances = within + (self.var_smoothing * largest if largest > 0 else 1.0)
        weights = np.concatenate([means / variances, -0.5 / variances], axis=1)
        fixed = np.square(means) / variances + np.log(variances)
        bias = np.log(totals / totals.sum()) - 0.5 * fixed.sum(axis=1)
        return linear_parts(member.classes, weights, bias, settings)


class BernoulliNaiveBayes(WeightedClassifier):
    """Every feature is on or off, independent of the others within a class.

    The same function as `sklearn.naive_bayes.BernoulliNB`, up to rounding.

    Parameters
    ----------
    alpha : float, default=1.0
        Rows that are imagined in addition, on and off, for every feature and class.
    threshold : float, default=0.0
        Values above are on.
    precision : {"double", "single"}, default="double"
        Weights are rounded to 25 bits of their length and multiplied in float64, or to 11 bits and
        multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> float(BernoulliNaiveBayes(threshold=8).fit(X, y).score(X, y)) > 0.85
    True
    """

    _members: ClassVar[type[StackedMembers]] = LinearMembers

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        threshold: float = 0.0,
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.alpha = alpha
        self.threshold = threshold
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        if not 0 < self.alpha < np.inf:
            raise InvalidInputError(f"alpha must be positive and finite, but is {self.alpha!r}.")
        if not np.isfinite(self.threshold):
            raise InvalidInputError(f"threshold must be finite, but is {self.threshold!r}.")

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"lift": "binary", "threshold": float(self.threshold)}

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows, y, weight = member.rows, member.positions, member.weight
        share, totals = class_means((self.threshold < rows).astype(np.float64), y, weight)
        seen = totals[:, np.newaxis]
        on = np.log(share * seen + self.alpha) - np.log(seen + 2 * self.alpha)
        off = np.log((1 - share) * seen + self.alpha) - np.log(seen + 2 * self.alpha)
        bias = np.log(totals / totals.sum()) + off.sum(axis=1)
        return linear_parts(member.classes, on - off, bias, settings)
