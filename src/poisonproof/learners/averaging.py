"""A member that averages several copies of a classifier, each with its own random stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeClassifier
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.joint import JointClassifier

__all__ = ["SeedAverage"]


class SeedAverage(JointClassifier):
    """Several copies of one classifier on the same rows; their probabilities are averaged.

    As a member of `DPAClassifier` it gives d copies per partition one common vote. A partition
    still has one member, so the certificate is the same function of the votes; averaging makes the
    member less dependent on its random stream, and its scores finer, which run-off elections use.

    Parameters
    ----------
    estimator : classifier with `predict_proba`, optional
        What a copy is; by default a randomised tree. It should draw at random, or all are equal.
    n_copies : int, default=4
        Number of copies, d.
    random_state : int, default=0
        Copy j draws from streams keyed by it and j. An ensemble sets it for every member.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.
    classifiers_ : list of classifiers
        The fitted copies.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> SeedAverage(n_copies=3).fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    def __init__(self, estimator: Any = None, n_copies: int = 4, random_state: int = 0) -> None:
        self.estimator = estimator
        self.n_copies = n_copies
        self.random_state = random_state

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the mean of the copies' probabilities, added in their order."""
        check_is_fitted(self, "classifiers_")
        return self._joint_scores(X)

    def _joint_scores(self, X: Any) -> NDArray[np.float64]:
        first, *others = self.classifiers_
        total: NDArray[np.float64] = np.array(first.predict_proba(X), dtype=np.float64)
        for copy in others:
            total += copy.predict_proba(X)
        return total / len(self.classifiers_)

    def _templates(self) -> list[Any]:
        template = ExtraTreeClassifier() if self.estimator is None else self.estimator
        return [template] * max(1, self.n_copies)

    def _check_parameters(self) -> None:
        if isinstance(self.n_copies, bool) or not self.n_copies >= 1:
            raise InvalidInputError(f"n_copies must be at least 1. Got {self.n_copies!r}.")
        (template, *_) = self._templates()
        if not hasattr(template, "predict_proba"):
            raise InvalidInputError(
                f"{type(template).__name__} has no predict_proba, so there is nothing to average. "
                "Use a classifier that gives probabilities."
            )
