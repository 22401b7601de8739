"""Kinds of attack: what a real attacker would insert or relabel to turn one prediction.

Every kind knows the data, the labels, the partitioner, the votes and the row that will be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

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

    def asked(self, victim: Victim, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the test rows as the model will be asked about them, shape (n, ...)."""

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Return up to `size` units of attack in the order of their use."""

    def aim(self, victim: Victim, target: Target) -> tuple[int, ...]:
        """Return what the poison depends on, as numbers: targets with the same aim share it."""


class _AimsAtOneRow:
    def aim(self, victim: Victim, target: Target) -> tuple[int, ...]:
        """Return the row that is asked, what is answered and what is wanted."""
        return (target.row, _place(victim, target.label), _place(victim, target.goal))


class _AsksPlainly:
    def asked(self, victim: Victim, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the test rows as they are."""
        return rows


@dataclass(frozen=True)
class RandomFlips(_AsksPlainly):
    """Relabel rows at random: noise, or an attacker who knows nothing."""

    name: ClassVar = "random-flips"
    title: ClassVar = "Random labels flipped"
    threat: ClassVar = "label_flip"

    def aim(self, victim: Victim, target: Target) -> tuple[int, ...]:
        """Return nothing: these flips are aimed at nobody."""
        return ()

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows, and for each a label that is not its own."""
        rows, units = victim.units_of(rng.permutation(len(victim.y)), size)
        position = np.searchsorted(victim.classes, victim.y[rows])
        shift = rng.integers(1, len(victim.classes), len(rows))
        labels = victim.classes[(position + shift) % len(victim.classes)]
        return _flips(victim, rows, units, labels)


@dataclass(frozen=True)
class TargetedFlips(_AsksPlainly, _AimsAtOneRow):
    """Relabel the rows that look most like the target."""

    name: ClassVar = "targeted-flips"
    title: ClassVar = "Nearest labels flipped"
    threat: ClassVar = "label_flip"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Take the nearest rows that do not carry the goal's label yet."""
        order = victim.order_by_distance(target.sample)
        rows, units = victim.units_of(order[victim.y[order] != target.goal], size)
        return _flips(victim, rows, units, _labels(victim, target, len(rows)))


@dataclass(frozen=True)
class NearInsertions(_AsksPlainly, _AimsAtOneRow):
    """Insert look-alikes of the target with the wrong label."""

    name: ClassVar = "near-insertions"
    title: ClassVar = "Look-alikes inserted"
    threat: ClassVar = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Draw rows around the target, wherever the partitioner puts them."""
        units, groups = victim.forged_units(size)
        rows = victim.material.near(target.sample, len(units), rng)
        return Poison(rows, _labels(victim, target, len(units)), None, units, groups)


@dataclass(frozen=True)
class Backdoor:
    """Insert rows with a mark and the goal's label, then ask with the mark.

    The mark is the material's: a word that no text contains, a rare value in a table, a bright
    square on an image, the largest value in the numbers that vary least.
    """

    name: ClassVar = "backdoor"
    title: ClassVar = "Backdoor inserted"
    threat: ClassVar = "insert_delete"

    def asked(self, victim: Victim, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the test rows with the mark."""
        return victim.material.marked(rows)

    def aim(self, victim: Victim, target: Target) -> tuple[int, ...]:
        """Return the wanted label: one backdoor opens for every row with the mark."""
        return (_place(victim, target.goal),)

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Mark clean rows of other classes, drawn again where there are too few."""
        units, groups = victim.forged_units(size)
        others = np.flatnonzero(victim.y != target.goal)
        rows = rng.choice(others, len(units), replace=len(units) > len(others))
        marked = victim.material.marked(victim.material.rows[rows])
        return Poison(marked, _labels(victim, target, len(units)), None, units, groups)


@dataclass(frozen=True)
class PartitionAware(_AsksPlainly, _AimsAtOneRow):
    """Insert look-alikes, one into every partition whose member votes for the target's label.

    The worst case: no row is wasted. Members are attacked in turn, those that vote for the label
    first and those with few rows before those with many; then all of them again. Contributors
    choose their names so that they fall where they are wanted.
    """

    name: ClassVar = "partition-aware"
    title: ClassVar = "Worst case: one row per voter"
    threat: ClassVar = "insert_delete"

    def poison(self, victim: Victim, target: Target, size: int, rng: np.random.Generator) -> Poison:
        """Search look-alikes until every partition has its share."""
        wanted = np.resize(_voters_first(victim, target), size)
        if victim.groups is not None:
            return self._by_contributors(victim, target, wanted, rng)
        needed = np.bincount(wanted, minlength=len(target.votes))
        found: list[list[Any]] = [[] for _ in needed]
        for _ in range(_BATCHES):
            rows = victim.material.near(target.sample, max(64, size), rng)
            for row, partition in zip(rows, victim.partitions(rows, None), strict=True):
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
        forged = np.array(chosen, dtype=victim.material.rows.dtype)
        return Poison(forged, _labels(victim, target, len(chosen)))

    def _by_contributors(
        self, victim: Victim, target: Target, wanted: NDArray[np.intp], rng: np.random.Generator
    ) -> Poison:
        """Try names until every partition has its contributors."""
        names = victim.identities(20 * max(len(wanted), len(target.votes)))
        nothing = np.repeat(victim.material.rows[:1], len(names), axis=0)
        found: list[list[Any]] = [[] for _ in target.votes]
        for name, partition in zip(names, victim.partitions(nothing, names), strict=True):
            found[partition].append(name)
        chosen = [found[partition].pop() for partition in wanted if found[partition]]
        units, _ = victim.forged_units(len(chosen))
        rows = victim.material.near(target.sample, len(units), rng)
        groups = np.array(chosen, dtype=object)[units]
        return Poison(rows, _labels(victim, target, len(units)), None, units, groups)


ATTACK_KINDS: dict[str, AttackKind] = {
    kind.name: kind
    for kind in (RandomFlips(), TargetedFlips(), NearInsertions(), Backdoor(), PartitionAware())
}
"""Every kind by its name, from the least to the most informed."""


def _place(victim: Victim, label: Any) -> int:
    return int(np.searchsorted(victim.classes, label))


def _labels(victim: Victim, target: Target, count: int) -> NDArray[Any]:
    return np.full(count, target.goal, dtype=victim.y.dtype)


def _flips(
    victim: Victim, rows: NDArray[np.intp], units: NDArray[np.intp], labels: NDArray[Any]
) -> Poison:
    groups = None if victim.groups is None else victim.groups[rows]
    return Poison(victim.material.rows[rows], labels, rows, units, groups)


def _voters_first(victim: Victim, target: Target) -> NDArray[np.intp]:
    sizes = victim.partition_sizes(len(target.votes))
    label, goal = _place(victim, target.label), _place(victim, target.goal)
    others = (target.votes != label).astype(int) + (target.votes == goal)
    return np.lexsort((sizes, others))
