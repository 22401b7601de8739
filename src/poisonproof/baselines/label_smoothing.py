"""Label-flip smoothing of linear classifiers (Rosenfeld et al., 2020), without sampling.

Least squares is linear in the labels: the score of class c on x is the sum of weights a_i(x) over
the rows labelled c. Under random labels that is a sum of independent terms, so Chernoff's bound
tells how likely c beats another class, and a union bound how likely it beats all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof.baselines.flip_noise import check_noise, flip_radius

__all__ = ["LabelSmoothingClassifier", "SmoothedLabels"]


@dataclass(frozen=True)
class SmoothedLabels:
    """Labels, and how many changed training labels each withstands.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Predictions.
    radius : int ndarray of shape (n,)
        Changed labels; 0 where nothing could be proved.
    miss : float ndarray of shape (n,)
        Upper bound of the share of noisy label vectors that lead to another label.
    """

    labels: NDArray[Any]
    radius: NDArray[np.int64]
    miss: NDArray[np.float64]

    def certified_accuracy(self, y: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
        """Return the share of samples that are right and withstand each attack size."""
        right = self.labels == np.asarray(y)
        return np.array([(right & (self.radius >= r)).mean() for r in np.atleast_1d(sizes)])


class LabelSmoothingClassifier(ClassifierMixin, BaseEstimator):
    """Ridge regression on one-hot labels, smoothed by random label flips.

    Parameters
    ----------
    q : float, default=0.1
        Probability that a training label is replaced by another, each alike.
    ridge : float, default=1.0
        Weight of the penalty.
    classes : array of shape (C,), optional
        The label set; by default the labels found.
    tilts : tuple of float
        Where to look for the smallest bound, in units of the best tilt of a normal distribution;
        each of them gives a valid one.
    chunk : int, default=200
        Samples certified at a time.

    Guarantee
    ---------
    Where a radius is positive, the smoothed classifier (the label that most noisy label vectors
    lead to) predicts the given label, and still does after that many labels were changed.

    Assumes
    -------
    The attacker changes labels only, and the weights do not depend on them.

    Examples
    --------
    >>> X = np.concatenate([np.full((200, 1), -1.0), np.full((200, 1), 1.0)])
    >>> y = np.repeat([0, 1], 200)
    >>> clf = LabelSmoothingClassifier(q=0.3).fit(X, y)
    >>> clf.certify([[-1.0], [1.0]]).labels
    array([0, 1])
    """

    def __init__(
        self,
        q: float = 0.1,
        ridge: float = 1.0,
        classes: Any = None,
        tilts: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
        chunk: int = 200,
    ) -> None:
        self.q = q
        self.ridge = ridge
        self.classes = classes
        self.tilts = tilts
        self.chunk = chunk

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Solve for the weights, which do not depend on labels, and keep the labels."""
        rows = self._rows(X)
        labels = np.asarray(y)
        self.classes_ = np.unique(labels if self.classes is None else np.asarray(self.classes))
        check_noise(self.q, len(self.classes_))
        self.codes_ = np.searchsorted(self.classes_, labels)
        gram = rows.T @ rows + self.ridge * np.eye(rows.shape[1])
        self.rows_, self.factor_ = rows, cho_factor(gram)
        return self

    def weights(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the weight of every training label in the scores of samples, shape (n, m)."""
        found: NDArray[np.float64] = cho_solve(self.factor_, self._rows(X).T).T @ self.rows_.T
        return found

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label with the largest expected score."""
        labels: NDArray[Any] = self.classes_[self._scores(self.weights(X)).argmax(axis=1)]
        return labels

    def certify(self, X: ArrayLike) -> SmoothedLabels:
        """Return labels and the number of changed labels they provably withstand."""
        samples = np.asarray(X)
        parts = [
            self._certified(self.weights(samples[start : start + self.chunk]))
            for start in range(0, len(samples), self.chunk)
        ]
        best = np.concatenate([part[0] for part in parts])
        miss = np.concatenate([part[1] for part in parts])
        radius = flip_radius(miss, self.q, len(self.classes_))
        return SmoothedLabels(self.classes_[best], radius, miss)

    def _rows(self, X: ArrayLike) -> NDArray[np.float64]:
        rows = np.asarray(X, dtype=np.float64)
        return np.hstack([rows.reshape(len(rows), -1), np.ones((len(rows), 1))])

    def _scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum weights by label, shape (n, C); expected scores are these, shrunk and shifted."""
        return np.stack(
            [weights[:, self.codes_ == c].sum(axis=1) for c in range(len(self.classes_))], axis=1
        )

    def _certified(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        scores = self._scores(weights)
        order = np.argsort(-scores, axis=1, kind="stable")
        best, second = order[:, 0], order[:, 1]
        n, n_classes = scores.shape
        miss = np.ones(n)
        for tilt in self.tilts:
            t = tilt * self._normal_tilt(weights, scores, best, second)
            logs = self._logs(weights * t[:, None], n_classes)
            total = np.zeros(n)
            for other in range(n_classes):
                chance = np.exp(np.minimum(0.0, self._exponent(logs, best, other)))
                total += np.where(best == other, 0.0, chance)
            miss = np.minimum(miss, total)
        return best, miss

    def _normal_tilt(
        self,
        weights: NDArray[np.float64],
        scores: NDArray[np.float64],
        best: NDArray[np.intp],
        second: NDArray[np.intp],
    ) -> NDArray[np.float64]:
        """Return mean over variance of the difference between the two best classes."""
        n_classes = scores.shape[1]
        other = self.q / (n_classes - 1)
        place = np.arange(len(scores))
        mean = (1.0 - self.q - other) * (scores[place, best] - scores[place, second])
        squares = self._scores(np.square(weights))
        involved = squares[place, best] + squares[place, second]
        own = (1.0 - self.q + other) - (1.0 - self.q - other) ** 2
        variance = own * involved + 2.0 * other * (squares.sum(axis=1) - involved)
        tilt: NDArray[np.float64] = mean / np.maximum(variance, np.finfo(float).tiny)
        return tilt

    def _logs(self, tilted: NDArray[np.float64], n_classes: int) -> NDArray[np.float64]:
        """Return sums over rows by label of log E exp(-t a (1[c] - 1[c'])), shape (3, n, C).

        For rows labelled c, rows labelled c', and rows labelled neither.
        """
        other = self.q / (n_classes - 1)
        down, up = np.exp(-tilted), np.exp(tilted)
        terms = (
            (1.0 - self.q) * down + other * up + (self.q - other),
            (1.0 - self.q) * up + other * down + (self.q - other),
            other * (down + up) + (1.0 - 2.0 * other),
        )
        return np.stack([self._scores(np.log(term)) for term in terms])

    def _exponent(
        self, logs: NDArray[np.float64], best: NDArray[np.intp], other: int
    ) -> NDArray[np.float64]:
        """Return the logarithm of Chernoff's bound that `other` reaches `best`."""
        mine, theirs, neither = logs
        place = np.arange(len(best))
        found: NDArray[np.float64] = (
            neither.sum(axis=1)
            - neither[place, best]
            - neither[:, other]
            + mine[place, best]
            + theirs[:, other]
        )
        return found
