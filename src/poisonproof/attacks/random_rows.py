"""Poisoned copies of a training set, made by an attacker who knows the partitioner.

Each attack has a size in the unit of one threat, and the partitions it touches, so that a real
refit can be held against the certificate: no prediction certified at that size may change, and no
member outside the touched partitions may change a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["ATTACK_THREATS", "Attack", "RowAttacker"]

ATTACK_THREATS = {
    "insert": "insert_delete",
    "delete": "insert_delete",
    "duplicate": "insert_delete",
    "relabel": "label_flip",
    "replace": "replace",
    "reorder": "insert_delete",
}
"""Kind of attack to the threat whose unit counts it. Reordering costs nothing."""

_HUGE = 1e30
_BATCHES = 200


@dataclass(frozen=True)
class Attack:
    """A poisoned training set.

    Attributes
    ----------
    kind : str
        A key of `ATTACK_THREATS`.
    size : int
        Units of the kind's threat: rows inserted, deleted, relabelled or replaced.
    X : ndarray of shape (m', d)
        The poisoned samples.
    y : ndarray of shape (m',)
        Their labels.
    touched : ndarray of int
        Partitions that hold an inserted, deleted or changed row, before or after.
    """

    kind: str
    size: int
    X: NDArray[Any]
    y: NDArray[Any]
    touched: NDArray[np.intp]


class RowAttacker:
    """Attacks one training set at random, or where it is told to.

    Parameters
    ----------
    X : ndarray of shape (m, d)
        Clean samples, numeric.
    y : ndarray of shape (m,)
        Clean labels.
    partitioner : partitioner
        Its ``assign`` tells which partition a row falls into; attackers know it.
    classes : sequence
        The labels an inserted row may carry.
    seed : int
        Every attack is a function of the training set, the seed and the attacks made before.
    whole : bool, default=False
        Insert rows of whole numbers within the data's range only, as pixels are.

    Examples
    --------
    >>> import numpy as np
    >>> from poisonproof.partition import ContentHash
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> attacker = RowAttacker(X, y, ContentHash(n_partitions=4), classes=[0, 1], seed=0)
    >>> attack = attacker.attack("insert", 3, partitions=[2])
    >>> attack.X.shape, attack.touched
    ((23, 2), array([2]))
    """

    def __init__(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        partitioner: Any,
        classes: Sequence[Any],
        seed: int,
        *,
        whole: bool = False,
    ) -> None:
        self.X, self.y = np.asarray(X), np.asarray(y)
        self.partitioner = partitioner
        self.classes = np.asarray(classes)
        self.assignment = np.asarray(partitioner.assign(self.X))
        self.sizes = np.bincount(self.assignment, minlength=partitioner.n_partitions)
        self.whole = whole
        self._rng = np.random.default_rng(seed)

    def attack(
        self,
        kind: str,
        size: int,
        *,
        partitions: Sequence[int] | None = None,
        near: NDArray[Any] | None = None,
        label: Any = None,
    ) -> Attack:
        """Make one attack.

        Parameters
        ----------
        kind : {"insert", "delete", "duplicate", "relabel", "replace", "reorder"}
            What happens to the rows. In half of the attacks the rows are shuffled as well.
        size : int
            Units of attack; fewer if the aimed partitions hold fewer rows to delete or relabel.
        partitions : sequence of int, optional
            Where the rows come from and go to, in turn; anywhere by default.
        near : ndarray of shape (d,), optional
            New rows look like this sample.
        label : optional
            The label of new and relabelled rows; at random by default.

        Returns
        -------
        Attack
        """
        if kind not in ATTACK_THREATS:
            raise InvalidInputError(
                f"The kind of an attack is one of {', '.join(ATTACK_THREATS)}. Got {kind!r}."
            )
        X, y, pick, new = self._poison(kind, size, partitions, near, label)
        if kind == "reorder" or self._rng.random() < 0.5:
            order = self._rng.permutation(len(y))
            X, y = X[order], y[order]
        touched = self.assignment[pick]
        if len(new):
            touched = np.append(touched, self.partitioner.assign(new))
        return Attack(kind, max(len(pick), len(new)), X, y, np.unique(touched).astype(np.intp))

    def _poison(
        self,
        kind: str,
        size: int,
        partitions: Sequence[int] | None,
        near: NDArray[Any] | None,
        label: Any,
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp], NDArray[Any]]:
        """Return poisoned samples and labels, the clean rows that were hit, and the new rows."""
        X, y, none = self.X, self.y, self.X[:0]
        if kind == "reorder":
            return X, y, np.empty(0, np.intp), none
        if kind == "insert":
            new = self._new_rows(size, partitions, near)
            labels = np.append(y, self._labels(size, label))
            return np.concatenate([X, new]), labels, np.empty(0, np.intp), new
        pick = self._pick(size, partitions, repeat=kind == "duplicate")
        if kind == "replace" and len(pick) == 0:
            pick = self._pick(size, None, repeat=False)  # empty partitions: rows from elsewhere
        if kind == "duplicate":
            return np.concatenate([X, X[pick]]), np.append(y, y[pick]), pick, none
        if kind == "delete":
            return np.delete(X, pick, axis=0), np.delete(y, pick), pick, none
        labels = y.copy()
        if kind == "relabel":
            labels[pick] = self._other_labels(y[pick], label)
            return X, labels, pick, none
        # The new rows go on where the old ones end, so that a replacement touches two partitions.
        onward = None if partitions is None else np.roll(partitions, -len(pick)).tolist()
        new = self._new_rows(len(pick), onward, near)
        labels[pick] = self._labels(len(pick), label)
        replaced = X.astype(np.result_type(X, new))
        replaced[pick] = new
        return replaced, labels, pick, new

    def _pick(self, size: int, partitions: Sequence[int] | None, *, repeat: bool) -> NDArray[Any]:
        """Choose clean rows, one of each aimed partition in turn."""
        if partitions is None:
            rows = self._rng.permutation(len(self.y))
        else:
            shuffled = [
                self._rng.permutation(np.flatnonzero(self.assignment == index))
                for index in dict.fromkeys(partitions)
            ]
            longest = max((len(rows) for rows in shuffled), default=0)
            rows = np.array(
                [rows[turn] for turn in range(longest) for rows in shuffled if turn < len(rows)],
                dtype=np.intp,
            )
        if repeat and 0 < len(rows) < size:
            rows = np.resize(rows, size)
        return rows[:size]

    def _labels(self, size: int, label: Any) -> NDArray[Any]:
        if label is not None:
            return np.full(size, label, dtype=self.y.dtype)
        return self._rng.choice(self.classes, size)

    def _other_labels(self, labels: NDArray[Any], label: Any) -> NDArray[Any]:
        position = np.searchsorted(np.sort(self.classes), labels)
        shift = self._rng.integers(1, len(self.classes), len(labels))
        other = np.sort(self.classes)[(position + shift) % len(self.classes)]
        chosen: NDArray[Any] = np.where(labels == label, other, label)
        return other if label is None else chosen

    def _new_rows(
        self, size: int, partitions: Sequence[int] | None, near: NDArray[Any] | None
    ) -> NDArray[Any]:
        if partitions is None:
            return self._candidates(size, near)
        wanted = np.resize(np.asarray(partitions), size)
        found: dict[int, list[NDArray[Any]]] = {int(index): [] for index in wanted}
        needed = {int(index): int((wanted == index).sum()) for index in wanted}
        for _ in range(_BATCHES):
            candidates = self._candidates(4 * len(self.sizes), near)
            for row, index in zip(candidates, self.partitioner.assign(candidates), strict=True):
                if int(index) in found:
                    found[int(index)].append(row)
            if all(len(found[index]) >= needed[index] for index in needed):
                return np.stack([found[int(index)].pop() for index in wanted])
        raise InvalidInputError(f"no rows were found that fall into the partitions {partitions}.")

    def _candidates(self, size: int, near: NDArray[Any] | None) -> NDArray[Any]:
        """Draw rows: near a sample, integers near it, uniform in the data's range, or extreme."""
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        start = self.X[self._rng.integers(len(self.X), size=size)] if near is None else near
        shape = (size, self.X.shape[1])
        close = start + self._rng.normal(0, 0.1 if self.whole else 1e-3, shape) * (high - low + 1)
        uniform = self._rng.uniform(low, high, shape)
        style = self._rng.integers(0, 4 if near is None else 2, size)[:, None]
        rows = np.where(style == 1, np.rint(close + self._rng.normal(0, 0.5, shape)), close)
        rows = np.where(style == 2, uniform, rows)
        if self.whole:
            return np.clip(np.rint(rows), low, high)
        extreme = self._rng.random(shape) < 0.05
        return np.where((style == 3) & extreme, _HUGE, rows)
