"""A member that averages several copies of a classifier, each with its own random stream."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.tree import ExtraTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.streams import seed_nested

__all__ = ["SeedAverage"]


class SeedAverage(ClassifierMixin, BaseEstimator):
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
    copies_ : list of classifiers
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all copies on the same rows.

        Parameters
        ----------
        X : array of shape (m, d)
            Samples.
        y : array of shape (m,)
            Labels.
        sample_weight : array of shape (m,), optional
            Handed to the copies.
        """
        if isinstance(self.n_copies, bool) or not self.n_copies >= 1:
            raise InvalidInputError(f"n_copies must be at least 1. Got {self.n_copies!r}.")
        template = ExtraTreeClassifier() if self.estimator is None else self.estimator
        if not hasattr(template, "predict_proba"):
            raise InvalidInputError(
                f"{type(template).__name__} has no predict_proba, so there is nothing to average. "
                "Use a classifier that gives probabilities."
            )
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        copies = []
        for index in range(self.n_copies):
            copy = clone(template)
            seed_nested(copy, self.random_state, index)
            copies.append(copy.fit(X, y, **weights))
        self.copies_ = copies
        self.classes_ = copies[0].classes_
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the mean of the copies' probabilities, added in their order."""
        check_is_fitted(self, "copies_")
        total: NDArray[np.float64] = np.zeros_like(self.copies_[0].predict_proba(X), np.float64)
        for copy in self.copies_:
            total += copy.predict_proba(X)
        return total / len(self.copies_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of the largest mean probability, the smaller label on ties."""
        mean = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[mean.argmax(axis=1)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        template = ExtraTreeClassifier() if self.estimator is None else self.estimator
        tags.input_tags = get_tags(template).input_tags
        return tags
