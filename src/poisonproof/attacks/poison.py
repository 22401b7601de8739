"""An attack as an ordered list of poisoned rows: its first s units are the attack of size s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["Poison", "Target", "Victim"]


@dataclass(frozen=True, eq=False)
class Victim:
    """A training set and what an attacker knows about the model: everything.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        Clean samples, numeric.
    y : ndarray of shape (m,)
        Clean labels.
    classes : ndarray of shape (C,)
        The label set.
    partitioner : Partitioner
        Fitted, or fixed: its ``assign`` tells where an inserted row falls.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    classes: NDArray[Any]
    partitioner: Any

    @classmethod
    def of(cls, classifier: Any, X: Any, y: Any) -> Self:
        """Describe the training set of a fitted classifier."""
        samples = np.asarray(X)
        if samples.ndim != 2 or samples.dtype.kind not in "iuf":
            raise InvalidInputError(
                "Attacks poison rows of numbers, an array of shape (m, d). Got shape "
                f"{samples.shape} of dtype {samples.dtype}."
            )
        return cls(samples, np.asarray(y), classifier.classes_, classifier.partitioner_)

    @property
    def whole(self) -> bool:
        """Whether all values are whole numbers, as pixels are."""
        return bool(np.array_equal(self.X, np.rint(self.X)))

    def near(self, sample: NDArray[Any], count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw rows that are hard to tell from a sample and stay in the range of the data."""
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        shape = (count, self.X.shape[1])
        if self.whole:
            noise = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.25)
        else:
            noise = rng.normal(0, 0.005, shape) * (high - low)
        rows: NDArray[Any] = np.clip(sample + noise, low, high).astype(self.X.dtype)
        return rows

    def order_by_distance(self, sample: NDArray[Any]) -> NDArray[np.intp]:
        """Return the clean rows from the nearest to the farthest, each feature in its own scale."""
        spread = self.X.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        distance = (((self.X - sample) / scale) ** 2).sum(axis=1)
        return np.argsort(distance, kind="stable")


@dataclass(frozen=True, eq=False)
class Target:
    """A test row that the attacker wants to turn.

    Attributes
    ----------
    row : int
        Position in the test set.
    sample : ndarray of shape (d,)
        What the model is asked.
    label, goal : object
        What the clean model answers, and the label closest to overtaking it.
    radius : int
        The certificate, in units of the attack's threat.
    votes : ndarray of shape (k,)
        The clean members' votes, as class indices.
    """

    row: int
    sample: NDArray[Any]
    label: Any
    goal: Any
    radius: int
    votes: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Poison:
    """Poisoned rows in the order in which the attacker would use them.

    Attributes
    ----------
    X : ndarray of shape (s, d)
        Rows that enter the training set.
    y : ndarray of shape (s,)
        Their labels.
    leaves : ndarray of int, shape (s,), or None
        Clean rows that leave in their place; None for insertions.

    Examples
    --------
    >>> flip = Poison(np.array([[1.0]]), np.array([1]), leaves=np.array([0]))
    >>> flip.apply(np.array([[1.0], [2.0]]), np.array([0, 0]), size=1)
    (array([[2.],
           [1.]]), array([0, 1]))
    """

    X: NDArray[Any]
    y: NDArray[Any]
    leaves: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def apply(
        self, X: NDArray[Any], y: NDArray[Any], size: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the training set after the first `size` units of the attack."""
        if self.leaves is not None:
            gone = self.leaves[:size]
            X, y = np.delete(X, gone, axis=0), np.delete(y, gone)
        return np.concatenate([X, self.X[:size]]), np.concatenate([y, self.y[:size]])
