"""Members of several classifiers, fitted on the same rows and voting as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.streams import give_one_worker, seed_nested


class Committee(ClassifierMixin, BaseEstimator):
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all classifiers on the same rows.

        Parameters
        ----------
        X : array of shape (m, d)
            Samples.
        y : array of shape (m,)
            Labels.
        sample_weight : array of shape (m,), optional
            Weights, for classifiers that all take them.
        """
        self._check_parameters()
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        fitted = []
        for index, (_, template) in enumerate(self.classifiers):
            classifier = clone(template)
            give_one_worker(classifier)
            seed_nested(classifier, self.random_state, index)
            fitted.append(classifier.fit(X, y, **weights))
        self.classifiers_ = fitted
        self.classes_ = fitted[0].classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of the largest summed score, the smaller label on ties."""
        check_is_fitted(self, "classifiers_")
        labels: NDArray[Any] = self.classes_[self._joint_scores(X).argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the softmax of the summed scores: their order counts, not their size."""
        check_is_fitted(self, "classifiers_")
        found: NDArray[np.float64] = softmax(self._joint_scores(X), axis=1)
        return found

    def __sklearn_tags__(self) -> Any:
        self._check_parameters()  # tags are read before anything is fitted
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.classifiers[0][1]).input_tags
        return tags

    def _joint_scores(self, X: Any) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.zeros(())
        for classifier in self.classifiers_:
            total = total + standardized(_scores(classifier, X))
        return total

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
