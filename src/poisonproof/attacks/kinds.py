"""Kinds of attack: rows to insert or relabel in order, the first s units for attack size s."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.materials import Material
from poisonproof.exceptions import InvalidInputError


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

    def assign(self, rows: NDArray[Any], groups: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return the partitions into which rows fall."""
        return np.asarray(self.partitioner.assign(self.material.encode(rows), groups=groups))

    @cached_property
    def assignment(self) -> NDArray[np.int64]:
        """The partitions of the clean rows, shape (m,)."""
        return self.assign(self.material.rows, self.groups)

    def first_units(self, order: NDArray[np.intp], size: int) -> NDArray[np.intp]:
        """Return the rows of the first `size` units in `order`, unit after unit."""
        if self.groups is None:
            return order[:size]
        units = _numbered(self.groups[order])
        kept = np.argsort(units, kind="stable")
        return order[kept[units[kept] < size]]

    def identities(self, count: int) -> NDArray[Any]:
        """Return names under which rows are inserted, shape (count,) or less.

        They are new contributors; where these cannot be made up (sources, days), those there are.
        """
        found = set() if self.groups is None else set(self.groups.tolist())
        if self.partitioner.unit in ("source", "day", "block"):
            return np.array(sorted(found, key=str)[:count], dtype=object)
        taken = set(map(str, found))
        names = (f"new contributor {number}" for number in itertools.count(1))
        free = (name for name in names if name not in taken)
        return np.array(list(itertools.islice(free, count)), dtype=object)


@dataclass(frozen=True, eq=False)
class Target:
    """A test row that the attacker wants to turn.

    Attributes
    ----------
    row : int
        Position in the test set.
    sample : ndarray of shape (d,), or str
        The row to predict, as an attacker would write it.
    label, goal : object
        The clean model's prediction, and the label closest to overtaking it.
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
    groups : ndarray of shape (s,), or None
        Who contributes each row, contributor after contributor: each of them is a unit of the
        attack. By default each row is one.

    Examples
    --------
    >>> flip = Poison(np.array([[1.0]]), np.array([1]), leaves=np.array([0]))
    >>> X, y, _ = flip.apply(np.array([[1.0], [2.0]]), np.array([0, 0]), size=1)
    >>> X.tolist(), y.tolist()
    ([[2.0], [1.0]], [0, 1])
    """

    X: NDArray[Any]
    y: NDArray[Any]
    leaves: NDArray[np.intp] | None = None
    groups: NDArray[Any] | None = None

    @cached_property
    def units(self) -> NDArray[np.intp]:
        """The unit of the attack to which each row belongs, shape (s,)."""
        return np.arange(len(self.y)) if self.groups is None else _numbered(self.groups)

    def __len__(self) -> int:
        return int(self.units.max(initial=-1)) + 1

    def apply(
        self, X: NDArray[Any], y: NDArray[Any], size: int, groups: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Return the training set after the first `size` units of the attack."""
        owners = None if groups is None else self._changed(groups, self.groups, size)
        return self._changed(X, self.X, size), self._changed(y, self.y, size), owners

    def n_rows(self, size: int) -> int:
        """Return how many rows the first `size` units of the attack bring."""
        return int(np.searchsorted(self.units, size))

    def _changed(self, clean: NDArray[Any], poison: Any, size: int) -> NDArray[Any]:
        count = self.n_rows(size)
        if self.leaves is not None:
            clean = np.delete(clean, self.leaves[:count], axis=0)
        return np.concatenate([clean, poison[:count]])


# Every kind knows the data, the labels, the partitioner, the votes and the row to predict.

_BATCHES = 100


class AttackKind(ABC):
    """One way to poison a training set.

    Attributes
    ----------
    name, title, threat : str
        A short name, a heading, and the threat that a model must certify.
    aims : tuple of str
        What the poison depends on: the target's ``"row"``, ``"label"`` or ``"goal"``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    threat: ClassVar[str]
    aims: ClassVar[tuple[str, ...]] = ("row", "label", "goal")

    def predicted(self, victim: Victim, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the test rows as they will be predicted, shape (n, ...)."""
        return rows

    @abstractmethod
    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Return up to `size` units of attack in the order of their use."""

    def aim(self, victim: Victim, target: Target) -> tuple[int, ...]:
        """Return what the poison depends on, as numbers: targets with the same aim share it."""
        known = {"row": target.row}
        known |= {name: _place(victim, getattr(target, name)) for name in ("label", "goal")}
        return tuple(known[name] for name in self.aims)


class RandomFlips(AttackKind):
    """Relabel rows at random: noise, or an attacker who knows nothing.

    Rows, and their new labels, are drawn with equal chances; contributors with all their rows.
    """

    name = "random-flips"
    title = "Random labels flipped"
    threat = "label_flip"
    aims = ()

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows, and for each a label that is not its own."""
        rows = victim.first_units(rng.permutation(len(victim.y)), size)
        position = np.searchsorted(victim.classes, victim.y[rows])
        shift = rng.integers(1, len(victim.classes), len(rows))
        return _flips(victim, rows, victim.classes[(position + shift) % len(victim.classes)])


class TargetedFlips(AttackKind):
    """Relabel the rows that look most like the target.

    Rows whose label is not the goal get it, the nearest first; contributors with all such rows.
    """

    name = "targeted-flips"
    title = "Nearest labels flipped"
    threat = "label_flip"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Take the nearest rows that do not carry the goal's label yet."""
        order = np.argsort(victim.material.distances(target.sample), kind="stable")
        rows = victim.first_units(order[victim.y[order] != target.goal], size)
        return _flips(victim, rows, np.full(len(rows), target.goal, dtype=victim.y.dtype))


class NearInsertions(AttackKind):
    """Insert look-alikes of the target with the goal's label.

    They fall where the partitioner puts them, so several may reach the same member.
    """

    name = "near-insertions"
    title = "Look-alikes inserted"
    threat = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows around the target, wherever the partitioner puts them."""
        rows = victim.material.near(target.sample, size * victim.rows_each, rng)
        return _insertions(victim, target, rows, victim.identities(size))


class Backdoor(AttackKind):
    """Insert rows with a mark and the goal's label; the target carries the mark.

    The mark is the material's: a word that no text contains, a rare value in a table, a bright
    square on an image, the largest value in the numbers that vary least.
    """

    name = "backdoor"
    title = "Backdoor inserted"
    threat = "insert_delete"
    aims = ("goal",)  # one backdoor opens for every row with the mark

    def predicted(self, victim: Victim, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the test rows with the mark."""
        return victim.material.marked(rows)

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Mark clean rows of other classes, drawn again where there are too few."""
        count = size * victim.rows_each
        others = np.flatnonzero(victim.y != target.goal)
        rows = rng.choice(others, count, replace=count > len(others))
        marked = victim.material.marked(victim.material.rows[rows])
        return _insertions(victim, target, marked, victim.identities(size))


class PartitionAware(AttackKind):
    """Insert look-alikes, one into every partition whose member votes for the target's label.

    The worst case: no row is wasted. Members are attacked in turn, those that vote for the label
    first and those with few rows before those with many; then all of them again. Contributors
    choose their names so that they fall where they are wanted.
    """

    name = "partition-aware"
    title = "Worst case: one row per voter"
    threat = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Try look-alikes, or names, until every partition has its share."""
        wanted = np.resize(_voters_first(victim, target), size).tolist()
        if victim.groups is None:
            found = _one_each(_look_alikes(victim, target, max(64, size), rng), wanted)
            rows, names = np.array(found, dtype=victim.material.rows.dtype), found
        else:
            tried = victim.identities(20 * max(size, len(target.votes)))
            nothing = np.repeat(victim.material.rows[:1], len(tried), axis=0)
            names = _one_each(zip(tried, victim.assign(nothing, tried), strict=True), wanted)
            rows = victim.material.near(target.sample, len(names) * victim.rows_each, rng)
        if not names:
            raise InvalidInputError(
                f"no row near test row {target.row} falls into the partitions of its voters."
            )
        return _insertions(victim, target, rows, names)


ATTACK_KINDS: dict[str, AttackKind] = {
    kind.name: kind
    for kind in (RandomFlips(), TargetedFlips(), NearInsertions(), Backdoor(), PartitionAware())
}
"""Every kind by its name, from the least to the most informed."""


def _place(victim: Victim, label: Any) -> int:
    return int(np.searchsorted(victim.classes, label))


def _numbered(groups: NDArray[Any]) -> NDArray[np.intp]:
    """Number groups in the order in which they first occur."""
    first: dict[Any, int] = {}
    return np.array([first.setdefault(group, len(first)) for group in groups], dtype=np.intp)


def _flips(victim: Victim, rows: NDArray[np.intp], labels: NDArray[Any]) -> Poison:
    groups = None if victim.groups is None else victim.groups[rows]
    return Poison(victim.material.rows[rows], labels, rows, groups)


def _insertions(victim: Victim, target: Target, rows: NDArray[Any], names: Any) -> Poison:
    """Return rows with the goal's label; contributors of these names bring equally many each."""
    labels = np.full(len(rows), target.goal, dtype=victim.y.dtype)
    if victim.groups is None:
        return Poison(rows, labels)
    return Poison(rows, labels, None, np.repeat(np.array(names, dtype=object), victim.rows_each))


def _voters_first(victim: Victim, target: Target) -> NDArray[np.intp]:
    sizes = np.bincount(victim.assignment, minlength=len(target.votes))
    label, goal = _place(victim, target.label), _place(victim, target.goal)
    others = (target.votes != label).astype(int) + (target.votes == goal)
    return np.lexsort((sizes, others))


def _look_alikes(
    victim: Victim, target: Target, count: int, rng: np.random.Generator
) -> Iterator[tuple[Any, int]]:
    """Yield rows near the target, in batches of `count`, and their partitions."""
    for _ in range(_BATCHES):
        rows = victim.material.near(target.sample, count, rng)
        yield from zip(rows, victim.assign(rows, None), strict=True)


def _one_each(candidates: Iterable[tuple[Any, int]], wanted: list[int]) -> list[Any]:
    """Return one candidate for every partition wanted; those that none reaches are passed over."""
    needed, missing = Counter(wanted), len(wanted)
    found: dict[int, list[Any]] = {partition: [] for partition in needed}
    for candidate, partition in candidates:
        if len(found.get(partition, ())) < needed[partition]:
            found[partition].append(candidate)
            missing -= 1
        if not missing:
            break
    return [found[partition].pop() for partition in wanted if found[partition]]
