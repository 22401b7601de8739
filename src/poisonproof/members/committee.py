"""Members of several classifiers, fitted on the same rows and voting as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.tree import ExtraTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.scikit import is_count
from poisonproof.members.streams import give_one_worker, seed_nested


class JointClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base class of classifiers whose scores become one."""

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
        """Fit all classifiers on the same rows, shape (m, d), labels and weights."""
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
        self._check_parameters()  # tags are read before anything is fitted
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._templates()[0]).input_tags
        return tags


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
        return [template] * int(self.n_copies)

    def _check_parameters(self) -> None:
        if not is_count(self.n_copies):
            raise InvalidInputError(f"n_copies must be at least 1. Got {self.n_copies!r}.")
        template = self._templates()[0]
        if not hasattr(template, "predict_proba"):
            raise InvalidInputError(
                f"{type(template).__name__} has no predict_proba, so there is nothing to average. "
                "Use a classifier that gives probabilities."
            )


class Committee(JointClassifier):
    """Soft voting: several classifiers on the same rows; the sum of their class scores decides.

    As a member of `DPAClassifier` it gives all classifiers of a partition one common vote, so the
    certificate is the same function of the votes. Classifiers that see different things err on
    different rows, and their sum errs less. All count alike: for every row the scores of each have
    mean 0 and deviation 1 over the classes.

    Parameters
    ----------
    classifiers : list of (str, classifier) pairs
        With `decision_function` or `predict_proba`. To let one see some columns only, put it behind
        a `ColumnTransformer` in a pipeline.
    random_state : int, default=0
        Classifier j draws from streams keyed by it and j. An ensemble sets it for every member.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.
    classifiers_ : list of classifiers
        The fitted classifiers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> pair = Committee([("bayes", GaussianNB()), ("tree", DecisionTreeClassifier())])
    >>> pair.fit(X, y).predict_proba(X).shape
    (178, 3)
    """

    def __init__(self, classifiers: Sequence[tuple[str, Any]], random_state: int = 0) -> None:
        self.classifiers = classifiers
        self.random_state = random_state

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the softmax of the summed scores: their order counts, not their size."""
        check_is_fitted(self, "classifiers_")
        found: NDArray[np.float64] = softmax(self._joint_scores(X), axis=1)
        return found

    def _joint_scores(self, X: Any) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.zeros(())
        for classifier in self.classifiers_:
            total = total + standardized(_scores(classifier, X))
        return total

    def _templates(self) -> list[Any]:
        return [classifier for _, classifier in self.classifiers]

    def _check_parameters(self) -> None:
        pairs = self.classifiers
        if not pairs or not all(isinstance(one, (tuple, list)) and len(one) == 2 for one in pairs):
            raise InvalidInputError(
                f"classifiers must be a list of (name, classifier) pairs, but is {pairs!r}."
            )
        for name, classifier in pairs:
            if not any(hasattr(classifier, way) for way in ("decision_function", "predict_proba")):
                raise InvalidInputError(
                    f"{name!r} is a {type(classifier).__name__}, which has neither "
                    "decision_function nor predict_proba, so it has no scores to add."
                )


def standardized(scores: NDArray[Any]) -> NDArray[Any]:
    """Return scores of mean 0 and deviation 1 over the classes, the last axis; equal ones are 0."""
    # Where classes do not lie side by side, NumPy adds them in an order that depends on the shape.
    scores = np.ascontiguousarray(scores)
    centred = scores - scores.mean(axis=-1, keepdims=True)
    deviation = centred.std(axis=-1, keepdims=True)
    found: NDArray[Any] = centred / np.where(deviation > 0, deviation, 1.0)
    return found


def _scores(classifier: Any, X: Any) -> NDArray[np.float64]:
    """Return one classifier's scores, a column for every class."""
    predict = getattr(classifier, "decision_function", None) or classifier.predict_proba
    scores = np.asarray(predict(X), dtype=np.float64)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
