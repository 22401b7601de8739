"""Other defences, to compare with: label smoothing and randomized ablation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gammaln
from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof.exceptions import InvalidInputError, needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Flipped labels under random labels.
#
# Every training label is kept with probability 1 - q and otherwise replaced by one of the other
# C - 1, each alike. Let the classifier miss a label with probability at most e under this noise. If
# r labels are changed before the noise, the distribution of the noisy labels moves: in the changed
# places two of the C values swap their probabilities. How likely a miss can become is answered by
# the lemma of Neyman and Pearson: it is made of the outcomes that the new distribution likes most
# against the old one.


def check_noise(q: float, n_classes: int) -> None:
    """Raise unless a kept label is likelier than any other."""
    if not 0 < q < (n_classes - 1) / n_classes:
        raise InvalidInputError(
            f"q must lie between 0 and {(n_classes - 1) / n_classes:.3f} for {n_classes} classes, "
            f"got {q}."
        )


def largest_miss(miss: float, r: int, q: float, n_classes: int) -> float:
    """Return the largest probability, after `r` changed labels, of an event that had `miss`.

    Examples
    --------
    >>> round(largest_miss(0.1, 1, 0.25, 2), 4)
    0.3
    """
    old, new = next(islice(_distributions(q, n_classes), r - 1, None))
    before = np.concatenate([[0.0], np.cumsum(old)])[:-1]
    # What is too unlikely under the old distribution for a float costs the attacker nothing.
    share = np.where(old > 0, np.clip((miss - before) / np.where(old > 0, old, 1.0), 0.0, 1.0), 1.0)
    return float((new * share).sum())


def _distributions(
    q: float, n_classes: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield, for r = 1, 2, ..., old and new probabilities of all likelihood ratios.

    In a changed place a noisy label is the new one, one of the others (ratio 1), or the old one.
    The ratio of all places depends on how many are new minus how many are old; the largest ratio
    new / old comes first.
    """
    other = q / (n_classes - 1)
    old_step = np.array([other, q - other, 1.0 - q])
    old, new = np.ones(1), np.ones(1)
    while True:
        old, new = np.convolve(old, old_step), np.convolve(new, old_step[::-1])
        yield old, new


def miss_limits(
    smallest: float, q: float, n_classes: int, largest: int = 4096
) -> NDArray[np.float64]:
    """Return, for r = 1, 2, ..., the probability of a miss at which r changed labels do harm.

    Parameters
    ----------
    smallest : float
        Limits are returned until one is not larger than this.
    q : float
        Probability that a label is replaced.
    n_classes : int
        Number of classes.
    largest : int
        No larger r is looked at.
    """
    check_noise(q, n_classes)
    limits: list[float] = []
    for old, new in islice(_distributions(q, n_classes), largest):
        reached = np.cumsum(new)
        place = int(np.searchsorted(reached, 0.5))
        short = 0.5 - (reached[place] - new[place])
        limit = float(old[:place].sum() + old[place] * short / new[place])
        limits.append(limit)
        if limit <= smallest:
            break
    return np.array(limits)


def flip_radius(miss: ArrayLike, q: float, n_classes: int) -> NDArray[np.int64]:
    """Return the most changed labels under which labels missed with `miss` keep a majority.

    Examples
    --------
    >>> flip_radius([0.5, 0.3, 0.1, 0.01], 0.25, 2)
    array([0, 0, 1, 5])
    """
    given = np.asarray(miss, dtype=np.float64)
    limits = miss_limits(float(given.min(initial=1.0)), q, n_classes)
    # Limits fall with r; a label stands r changes as long as its miss is below the limit.
    return np.searchsorted(-limits, -given, side="left").astype(np.int64)


# Label-flip smoothing of linear classifiers (Rosenfeld et al., 2020), without sampling.
#
# Least squares is linear in the labels: the score of class c on x is the sum of weights a_i(x) over
# the rows labelled c. Under random labels that is a sum of independent terms, so Chernoff's bound
# tells how likely c beats another class, and a union bound how likely it beats all.


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


# Randomized ablation against disjoint partitions (appendix C of the paper).
#
# A base classifier sees s of m labels. If they are drawn at random for every classifier, r flipped
# labels poison a share of all classifiers that can be computed; with m / s disjoint partitions they
# poison at most r of them.


def poisoned_share_random(m: int, s: int, r: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that a random subset of `s` of `m` labels meets one of `r` flips.

    Examples
    --------
    >>> round(float(poisoned_share_random(60000, 50, 200)), 3)
    0.154
    """
    flips = _checked(m, s, r)
    left = np.maximum(m - flips, s)
    # C(m - r, s) / C(m, s) as a ratio of factorials; no subset is left if r > m - s.
    log_ratio = gammaln(left + 1) - gammaln(left - s + 1) - gammaln(m + 1) + gammaln(m - s + 1)
    return np.where(m - flips < s, 1.0, -np.expm1(log_ratio))


def poisoned_share_disjoint(m: int, s: int, r: ArrayLike) -> NDArray[np.float64]:
    """Return the largest share of disjoint partitions of `s` labels that `r` flips can reach.

    Examples
    --------
    >>> round(float(poisoned_share_disjoint(60000, 50, 200)), 3)
    0.167
    """
    return np.minimum(1.0, _checked(m, s, r) * s / m)


def _checked(m: int, s: int, r: ArrayLike) -> NDArray[np.int64]:
    flips = np.asarray(r, dtype=np.int64)
    if not 1 <= s <= m or (flips < 0).any() or (flips > m).any():
        raise InvalidInputError(f"Need 1 <= s <= m and 0 <= r <= m; got m={m}, s={s}, r={flips}.")
    return flips


def plot_poisoned_shares(m: int = 60000, s: int = 50, largest: int = 1000, ax: Any = None) -> Axes:
    """Draw both shares against the number of flipped labels."""
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure
    if ax is None:
        ax = Figure(figsize=(6.4, 4.2), layout="constrained").subplots()
    flips = np.arange(largest + 1)
    ax.plot(flips, 100 * poisoned_share_disjoint(m, s, flips), label="disjoint partitions")
    ax.plot(flips, 100 * poisoned_share_random(m, s, flips), "--", label="random subsets")
    ax.set_xlabel("flipped labels")
    ax.set_ylabel("poisoned base classifiers (%)")
    ax.set_title(f"{s:,} of {m:,} labels per base classifier", loc="left")
    ax.legend(edgecolor="none")
    axes: Axes = ax
    return axes
