"""A model under growing attacks: members whose partitions an attack changes are trained again."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.kinds import Poison, Victim
from poisonproof.certificates.plurality import certify_votes
from poisonproof.exceptions import GuaranteeError
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, stacked, take_rows
from poisonproof.partition.partitioned import PartitionedData


class PoisonedModel:
    """The predictions of a few rows after the first units of an attack.

    Members whose partitions hold the same rows as before are kept, which the library guarantees;
    `check_from_scratch` compares one size with training everything again.
    """

    def __init__(self, classifier: Any, victim: Victim, poison: Poison, samples: Any) -> None:
        self._classifier, self._victim, self._poison = classifier, victim, poison
        self._data: PartitionedData = classifier.rows_.whole()
        self._samples = samples
        self._clean_votes = classifier.votes(samples)
        # The first rows of an attack are the attack of a smaller size, so the number of its rows
        # that a partition has got says which.
        self._known: dict[tuple[int, int], NDArray[Any]] = {}

    def changes(self, row: int, label: Any, size: int) -> bool:
        """Return whether `size` units of the attack give one of the samples another label."""
        classes = self._classifier.classes_
        return bool(classes[certify_votes(self.votes(size), len(classes)).labels[row]] != label)

    def votes(self, size: int) -> NDArray[Any]:
        """Return the members' votes after `size` units of the attack, shape (n, k)."""
        poison, data = self._poison, self._data
        count = poison.n_rows(size)
        if poison.leaves is None:
            groups = None if poison.groups is None else poison.groups[:count]
            samples = as_container(self._victim.material.encode(poison.X[:count]))
            places = self._classifier.partitioner_.assign(samples, groups=groups)
            digests = sample_digests(samples)
        else:  # the sample stays, and so does its partition
            rows = poison.leaves[:count]
            samples = take_rows(as_container(data.X), rows)
            places, digests = data.assignment[rows], data.digests[rows]
        votes: NDArray[Any] = self._clean_votes.copy()
        arrived = np.bincount(places, minlength=votes.shape[1]).tolist()
        touched = [index for index, rows in enumerate(arrived) if rows]
        missing = [index for index in touched if (index, arrived[index]) not in self._known]
        if missing:
            poisoned = copy(self._classifier)
            members = poisoned._train(self._poisoned(missing, samples, places, digests), missing)
            poisoned.ensemble_ = members
            for index, own in zip(missing, poisoned.votes(self._samples).T, strict=True):
                self._known[index, arrived[index]] = own
        for index in touched:
            votes[:, index] = self._known[index, arrived[index]]
        return votes

    def check_from_scratch(self, size: int) -> None:
        """Train all members again on the poisoned rows, and raise if a vote differs."""
        victim = self._victim
        X, y, groups = self._poison.apply(victim.material.rows, victim.y, size, victim.groups)
        again = clone(self._classifier).fit(victim.material.encode(X), y, groups=groups)
        differ = (again.votes(self._samples) != self.votes(size)).any(axis=0)
        if differ.any():
            raise GuaranteeError(
                f"trained from scratch on the same rows, member {int(np.argmax(differ))} votes "
                "differently: its learner is not a function of its own partition, and "
                "certificates of this model prove nothing."
            )

    def _poisoned(
        self, which: list[int], samples: Any, places: NDArray[np.int64], digests: NDArray[np.uint8]
    ) -> PartitionedData:
        """Return the partitions `which`, with the rows of the attack that have arrived."""
        clean, poison, classifier = self._data, self._poison, self._classifier
        assignment, count = clean.assignment, len(places)
        stays, arrives = np.ones(clean.n_rows, dtype=np.bool_), np.ones(count, dtype=np.bool_)
        if poison.leaves is not None:
            stays[poison.leaves[:count]] = False
        if classifier.context_ is None:
            stays &= np.isin(assignment, which)
            arrives = np.isin(places, which)
        old, new = np.flatnonzero(stays), np.flatnonzero(arrives)
        labels = np.searchsorted(classifier.classes_, poison.y[new])
        return PartitionedData.build(
            stacked([take_rows(as_container(clean.X), old), take_rows(samples, new)]),
            np.concatenate([clean.y[old], labels]),
            np.concatenate([assignment[old], places[new]]),
            np.concatenate([clean.digests[old], digests[new]]),
            len(clean),
        )


# How large an attack of one kind must be before a prediction changes, by real retraining.


@dataclass(frozen=True)
class Trace:
    """Attack sizes that were tried on one prediction.

    Attributes
    ----------
    tried : tuple of int
        Sizes, in the order in which they were tried; one retraining each.
    changed : tuple of bool
        Whether each changed the prediction.
    """

    tried: tuple[int, ...]
    changed: tuple[bool, ...]

    @property
    def first(self) -> int | None:
        """The smallest size found that changes the prediction; None if none did."""
        return min((s for s, c in zip(self.tried, self.changed, strict=True) if c), default=None)

    def within(self, radius: int) -> tuple[int, int]:
        """Return how many tried sizes are at most `radius`, and how many of those changed."""
        inside = [c for s, c in zip(self.tried, self.changed, strict=True) if s <= radius]
        return len(inside), sum(inside)


def first_change(changes: Callable[[int], bool], radius: int, limit: int) -> Trace:
    """Try growing sizes until one changes the prediction, then close in on the first one.

    The certified `radius` and the next size are always tried, if no smaller one succeeds. A larger
    attack need not succeed where a smaller one does: the first change is the smallest one found.
    """
    results: dict[int, bool] = {}
    kept = 0
    for size in ladder(radius, limit):
        results[size] = changes(size)
        if results[size]:
            break
        kept = size
    else:
        return Trace(tuple(results), tuple(results.values()))
    turned = size
    while turned - kept > 1:
        middle = (kept + turned) // 2
        results[middle] = changes(middle)
        kept, turned = (kept, middle) if results[middle] else (middle, turned)
    return Trace(tuple(results), tuple(results.values()))


def ladder(radius: int, limit: int) -> list[int]:
    """Return growing attack sizes up to `limit`, the radius and the next one among them."""
    sizes = {limit, min(radius, limit), min(radius + 1, limit)}
    step, following = 1, 2
    while step <= limit:
        sizes.add(step)
        step, following = following, step + following
    return sorted(size for size in sizes if size > 0)
