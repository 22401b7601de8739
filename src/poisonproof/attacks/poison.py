"""An attack as an ordered list of poisoned rows: its first s units are the attack of size s."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.materials import Material
from poisonproof.exceptions import InvalidInputError

__all__ = ["Poison", "Target", "Victim"]


@dataclass(frozen=True, eq=False)
class Victim:
    """A training set and what an attacker knows about the model: everything.

    Attributes
    ----------
    material : Material
        The clean rows, and how to forge more of them.
    y : ndarray of shape (m,)
        Clean labels.
    classes : ndarray of shape (C,)
        The label set.
    partitioner : Partitioner
        Fitted, or fixed: its ``assign`` tells where an inserted row falls.
    groups : ndarray of shape (m,), optional
        Who contributed each row. A unit of attack is then a contributor with all their rows.
    """

    material: Material
    y: NDArray[Any]
    classes: NDArray[Any]
    partitioner: Any
    groups: NDArray[Any] | None = None

    @cached_property
    def samples(self) -> NDArray[Any]:
        """What the model is trained on, shape (m, ...)."""
        return self.material.encode(self.material.rows)

    @property
    def n_units(self) -> int:
        """Clean rows, or contributors."""
        return len(self.y) if self.groups is None else len(set(self.groups.tolist()))

    @property
    def rows_each(self) -> int:
        """Rows that one forged unit brings: one, or what an average contributor hands in."""
        if self.groups is None:
            return 1
        return max(1, round(len(self.groups) / self.n_units))

    def order_by_distance(self, row: Any) -> NDArray[np.intp]:
        """Return the clean rows from the nearest to the farthest."""
        return np.argsort(self.material.distances(row), kind="stable")

    def partitions(self, rows: NDArray[Any], groups: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return where rows would fall."""
        samples = self.material.encode(rows)
        assign = self.partitioner.assign
        return np.asarray(assign(samples) if groups is None else assign(samples, groups=groups))

    def partition_sizes(self, k: int) -> NDArray[np.intp]:
        """Return the number of clean rows in each of k partitions."""
        return np.bincount(self._assignment, minlength=k)

    @cached_property
    def _assignment(self) -> NDArray[np.int64]:
        return np.asarray(self.partitioner.assign(self.samples, groups=self.groups))

    def units_of(self, order: NDArray[np.intp], size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the rows of the first `size` units in `order`, and the unit of each row."""
        if self.groups is None:
            return order[:size], np.arange(min(size, len(order)))
        first: dict[Any, int] = {}
        units = np.array([first.setdefault(group, len(first)) for group in self.groups[order]])
        kept = np.argsort(units, kind="stable")
        kept = kept[units[kept] < size]
        return order[kept], units[kept]

    def forged_units(self, size: int) -> tuple[NDArray[np.intp], NDArray[Any] | None]:
        """Return the unit and the identity of every row that `size` forged units bring."""
        units = np.repeat(np.arange(size), self.rows_each)
        return units, None if self.groups is None else self.identities(size)[units]

    def identities(self, count: int) -> NDArray[Any]:
        """Return names of new contributors, shape (count,), none of which is taken."""
        taken = () if self.groups is None else set(map(str, self.groups.tolist()))
        names = (f"new contributor {number}" for number in itertools.count(1))
        array = np.empty(count, dtype=object)
        array[:] = list(itertools.islice((name for name in names if name not in taken), count))
        return array


@dataclass(frozen=True, eq=False)
class Target:
    """A test row that the attacker wants to turn.

    Attributes
    ----------
    row : int
        Position in the test set.
    sample : ndarray of shape (d,), or str
        The row that the model is asked about, as an attacker would write it.
    label, goal : object
        What the clean model answers, and the label closest to overtaking it.
    radius : int
        The certificate, in units of the attack's threat.
    votes : ndarray of shape (k,)
        The clean members' votes, as class indices.
    """

    row: int
    sample: Any
    label: Any
    goal: Any
    radius: int
    votes: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Poison:
    """Poisoned rows in the order in which the attacker would use them.

    Attributes
    ----------
    X : ndarray of shape (s, ...)
        Rows that enter the training set.
    y : ndarray of shape (s,)
        Their labels.
    leaves : ndarray of int, shape (s,), or None
        Clean rows that leave in their place; None for insertions.
    units : ndarray of int, shape (s,), or None
        Which unit of the attack each row belongs to, from 0 without gaps; by default each row is
        one.
    groups : ndarray of shape (s,), or None
        Who contributes each row.

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
    units: NDArray[np.intp] | None = None
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        if self.units is None:
            return len(self.y)
        return int(self.units.max()) + 1 if len(self.units) else 0

    def apply(
        self, X: NDArray[Any], y: NDArray[Any], size: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the training set after the first `size` units of the attack."""
        return self._changed(X, self.X, size), self._changed(y, self.y, size)

    def apply_groups(self, groups: NDArray[Any], size: int) -> NDArray[Any]:
        """Return who contributed each row after the first `size` units of the attack."""
        if self.groups is None:
            raise InvalidInputError("This poison says nothing about who contributes it.")
        return self._changed(groups, self.groups, size)

    def n_rows(self, size: int) -> int:
        """Return how many rows the first `size` units of the attack bring."""
        return size if self.units is None else int(np.searchsorted(self.units, size))

    def _changed(self, clean: NDArray[Any], poison: NDArray[Any], size: int) -> NDArray[Any]:
        count = self.n_rows(size)
        if self.leaves is not None:
            clean = np.delete(clean, self.leaves[:count], axis=0)
        return np.concatenate([clean, poison[:count]])
