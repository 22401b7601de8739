"""Kinds of attack: what a real attacker would insert or relabel to turn one prediction.

Every kind knows the data, the labels, the partitioner, the votes and the row that will be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.poison import Poison, Target, Victim
from poisonproof.exceptions import InvalidInputError

__all__ = [
    "ATTACK_KINDS",
    "AttackKind",
    "Backdoor",
    "NearInsertions",
    "PartitionAware",
    "RandomFlips",
    "TargetedFlips",
]

_BATCHES = 100


class AttackKind(Protocol):
    """One way to poison a training set."""

    name: ClassVar[str]
    title: ClassVar[str]
    threat: ClassVar[str]

    def asked(self, victim: Victim, X: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the test rows as the model will be asked about them, shape (n, d)."""

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Return up to `size` units of attack in the order of their use."""


class _AsksPlainly:
    def asked(self, victim: Victim, X: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the test rows as they are."""
        return X


@dataclass(frozen=True)
class RandomFlips(_AsksPlainly):
    """Relabel rows at random: noise, or an attacker who knows nothing."""

    name: ClassVar = "random-flips"
    title: ClassVar = "Random labels flipped"
    threat: ClassVar = "label_flip"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows, and for each a label that is not its own."""
        rows = rng.permutation(len(victim.y))[:size]
        position = np.searchsorted(victim.classes, victim.y[rows])
        shift = rng.integers(1, len(victim.classes), len(rows))
        labels = victim.classes[(position + shift) % len(victim.classes)]
        return Poison(victim.X[rows], labels, rows)


@dataclass(frozen=True)
class TargetedFlips(_AsksPlainly):
    """Relabel the rows that look most like the target."""

    name: ClassVar = "targeted-flips"
    title: ClassVar = "Nearest labels flipped"
    threat: ClassVar = "label_flip"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Take the nearest rows that do not carry the goal's label yet."""
        order = victim.order_by_distance(target.sample)
        rows = order[victim.y[order] != target.goal][:size]
        return Poison(victim.X[rows], _labels(victim, target, len(rows)), rows)


@dataclass(frozen=True)
class NearInsertions(_AsksPlainly):
    """Insert look-alikes of the target with the wrong label."""

    name: ClassVar = "near-insertions"
    title: ClassVar = "Look-alikes inserted"
    threat: ClassVar = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows around the target, wherever the partitioner puts them."""
        rows = victim.near(target.sample, size, rng)
        return Poison(rows, _labels(victim, target, size))


@dataclass(frozen=True)
class Backdoor:
    """Insert rows with a mark and the goal's label, then ask with the mark.

    Parameters
    ----------
    n_marked : int, default=4
        Features that the mark sets to the largest value in the data: those that vary least, so
        that no clean row looks marked.
    """

    name: ClassVar = "backdoor"
    title: ClassVar = "Backdoor inserted"
    threat: ClassVar = "insert_delete"

    n_marked: int = 4

    def asked(self, victim: Victim, X: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the test rows with the mark."""
        marked = X.copy()
        quiet = np.argsort(victim.X.std(axis=0), kind="stable")[: self.n_marked]
        marked[:, quiet] = victim.X.max()
        return marked

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Mark clean rows of other classes, drawn again where there are too few."""
        others = np.flatnonzero(victim.y != target.goal)
        rows = rng.choice(others, size, replace=size > len(others))
        return Poison(self.asked(victim, victim.X[rows]), _labels(victim, target, size))


@dataclass(frozen=True)
class PartitionAware(_AsksPlainly):
    """Insert look-alikes, one into every partition whose member votes for the target's label.

    The worst case: no row is wasted. Members are attacked in turn, those that vote for the label
    first and those with few rows before those with many; then all of them again.
    """

    name: ClassVar = "partition-aware"
    title: ClassVar = "Worst case: one row per voter"
    threat: ClassVar = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Search look-alikes until every partition has its share."""
        order = _voters_first(victim, target)
        wanted = np.resize(order, size)
        needed = np.bincount(wanted, minlength=len(target.votes))
        found: list[list[NDArray[np.generic]]] = [[] for _ in needed]
        for _ in range(_BATCHES):
            rows = victim.near(target.sample, max(64, 4 * size), rng)
            for row, partition in zip(rows, victim.partitioner.assign(rows), strict=True):
                if len(found[partition]) < needed[partition]:
                    found[partition].append(row)
            if all(len(rows) == count for rows, count in zip(found, needed, strict=True)):
                break
        # Partitions that no look-alike reached are passed over.
        chosen = [found[partition].pop() for partition in wanted if found[partition]]
        if not chosen:
            raise InvalidInputError(
                f"no row near test row {target.row} falls into the partitions of its voters."
            )
        return Poison(np.stack(chosen), _labels(victim, target, len(chosen)))


ATTACK_KINDS: dict[str, AttackKind] = {
    kind.name: kind
    for kind in (RandomFlips(), TargetedFlips(), NearInsertions(), Backdoor(), PartitionAware())
}
"""Every kind by its name, from the least to the most informed."""


def _labels(victim: Victim, target: Target, count: int) -> NDArray[np.generic]:
    return np.full(count, target.goal, dtype=victim.y.dtype)


def _voters_first(victim: Victim, target: Target) -> NDArray[np.intp]:
    sizes = np.bincount(victim.partitioner.assign(victim.X), minlength=len(target.votes))
    label = int(np.searchsorted(victim.classes, target.label))
    goal = int(np.searchsorted(victim.classes, target.goal))
    others = (target.votes != label).astype(int) + (target.votes == goal)
    return np.lexsort((sizes, others))
