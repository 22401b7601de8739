"""A member of several kinds of classifier, who cast one vote together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.joint import JointClassifier

__all__ = ["Committee", "equal_voices"]


class Committee(JointClassifier):
    """Several classifiers on the same rows; the sum of their class scores decides.

    As a member of `DPAClassifier` it gives all classifiers of a partition one common vote, so the
    certificate is the same function of the votes. Classifiers that see different things err on
    different rows, and their sum errs less. No classifier speaks louder than another: for every
    row the scores of each have mean 0 and deviation 1 over the classes.

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
            total = total + equal_voices(_scores(classifier, X))
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


def equal_voices(scores: NDArray[Any]) -> NDArray[Any]:
    """Return scores of mean 0 and deviation 1 over the last axis, the classes.

    Scores that are all equal become zeros. Those of a row depend on nothing beside it.

    Examples
    --------
    >>> import numpy as np
    >>> equal_voices(np.array([[10.0, 30.0], [7.0, 7.0]]))
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    # Where classes do not lie side by side, NumPy adds them in an order that depends on the shape.
    scores = np.ascontiguousarray(scores)
    centred = scores - scores.mean(axis=-1, keepdims=True)
    deviation = centred.std(axis=-1, keepdims=True)
    voices: NDArray[Any] = centred / np.where(deviation > 0, deviation, 1.0)
    return voices


def _scores(classifier: Any, X: Any) -> NDArray[np.float64]:
    """Return one classifier's scores, a column for every class."""
    ask = getattr(classifier, "decision_function", None) or classifier.predict_proba
    scores = np.asarray(ask(X), dtype=np.float64)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
