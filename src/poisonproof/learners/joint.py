"""What members of several classifiers share: all are fitted on the same rows, and vote as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from poisonproof.learners.streams import give_one_worker, seed_nested

__all__ = ["JointClassifier"]


class JointClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base class: a subclass names its classifiers and says how their scores become one."""

    random_state: int

    @abstractmethod
    def _templates(self) -> list[Any]:
        """Return the classifiers to fit."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise InvalidInputError for classifiers that cannot vote together."""

    @abstractmethod
    def _joint_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the common scores of the fitted classifiers, shape (n, C)."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all classifiers on the same rows.

        Parameters
        ----------
        X : array of shape (m, d)
            Samples.
        y : array of shape (m,)
            Labels.
        sample_weight : array of shape (m,), optional
            Handed to the classifiers.
        """
        self._check_parameters()
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        fitted = []
        for index, template in enumerate(self._templates()):
            classifier = clone(template)
            give_one_worker(classifier)
            seed_nested(classifier, self.random_state, index)
            fitted.append(classifier.fit(X, y, **weights))
        self.classifiers_ = fitted
        self.classes_ = fitted[0].classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of the largest common score, the smaller label on ties."""
        check_is_fitted(self, "classifiers_")
        labels: NDArray[Any] = self.classes_[self._joint_scores(X).argmax(axis=1)]
        return labels

    def __sklearn_tags__(self) -> Any:
        self._check_parameters()  # an ensemble asks for tags before anything is fitted
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._templates()[0]).input_tags
        return tags
