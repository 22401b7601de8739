"""A model under growing attacks: members whose partitions an attack changes are trained again."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.kinds import Poison
from poisonproof.certificates.plurality import certify_votes
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, stacked, take_rows
from poisonproof.partition.partitioned import PartitionedData

_FIRST_BLOCK = 64


@dataclass(frozen=True, eq=False)
class CleanModel:
    """A classifier fitted on clean rows, and those rows in their partitions, in their order."""

    classifier: Any
    data: PartitionedData

    @classmethod
    def of(cls, classifier: Any, n_rows: int) -> CleanModel:
        """Return a classifier that holds its training rows, all `n_rows` of them."""
        data = classifier.rows_.whole()
        if data.n_rows != n_rows:
            raise InvalidInputError(
                f"{n_rows - data.n_rows} of {n_rows} training rows were left out because members "
                "cannot take them. Leave them out before attacking: attacks count rows."
            )
        return cls(classifier, data)


class WrittenAttack:
    """Poisoned rows as a model takes them, encoded as far as they are needed."""

    def __init__(self, poison: Poison, encode: Callable[[Any], Any]) -> None:
        self.poison = poison
        self._encode = encode
        self._parts: list[Any] = []
        self._ready = 0

    def samples(self, count: int) -> Any:
        """Return the samples of the first `count` rows."""
        if count > self._ready:
            until = min(len(self.poison.y), max(count, 2 * self._ready, _FIRST_BLOCK))
            self._parts.append(as_container(self._encode(self.poison.X[self._ready : until])))
            self._ready = until
        return take_rows(stacked(self._parts), np.arange(count))


class PoisonedModel:
    """The predictions of a few rows after the first units of an attack.

    A member is a function of its own partition, so the members of partitions that hold the same
    rows as before are kept, from the clean model and from other sizes of the same attack. That
    they may be kept is what the library guarantees; `check_from_scratch` holds one size against
    training everything again.
    """

    def __init__(self, model: CleanModel, attack: WrittenAttack, samples: Any) -> None:
        self._model, self._attack, self._samples = model, attack, samples
        self._clean_votes = model.classifier.votes(samples)
        # The first rows of an attack are the attack of a smaller size, so the number of its rows
        # that a partition has got says which.
        self._known: dict[tuple[int, int], NDArray[Any]] = {}

    def labels(self, size: int) -> NDArray[Any]:
        """Return the labels after `size` units of the attack, shape (n,)."""
        classes = self._model.classifier.classes_
        labels: NDArray[Any] = classes[certify_votes(self.votes(size), len(classes)).labels]
        return labels

    def votes(self, size: int) -> NDArray[Any]:
        """Return the members' votes after `size` units of the attack, shape (n, k)."""
        count = self._attack.poison.n_rows(size)
        places, digests = self._placed(count)
        votes: NDArray[Any] = self._clean_votes.copy()
        arrived = np.bincount(places, minlength=votes.shape[1]).tolist()
        touched = [index for index, rows in enumerate(arrived) if rows]
        missing = [index for index in touched if (index, arrived[index]) not in self._known]
        if missing:
            trained = self._trained(self._poisoned(missing, count, places, digests), missing)
            for index, own in zip(missing, trained.T, strict=True):
                self._known[index, arrived[index]] = own
        for index in touched:
            votes[:, index] = self._known[index, arrived[index]]
        return votes

    def check_from_scratch(self, size: int, groups: Any) -> None:
        """Train all members again on the poisoned rows, and raise if a vote differs.

        `groups` says who contributed each row after `size` units of the attack.
        """
        classifier, count = self._model.classifier, self._attack.poison.n_rows(size)
        data = self._poisoned(None, count, *self._placed(count))
        again = clone(classifier).fit(data.X, classifier.classes_[data.y], groups=groups)
        differ = (again.votes(self._samples) != self.votes(size)).any(axis=0)
        if differ.any():
            raise GuaranteeError(
                f"trained from scratch on the same rows, member {int(np.argmax(differ))} votes "
                "differently: its learner is not a function of its own partition, and "
                "certificates of this model prove nothing."
            )

    def _placed(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return partitions and digests of the first `count` rows of the attack."""
        poison, model = self._attack.poison, self._model
        if poison.leaves is not None:  # the sample stays, and so does its partition
            rows = poison.leaves[:count]
            return model.data.assignment[rows], model.data.digests[rows]
        samples = self._attack.samples(count)
        groups = None if poison.groups is None else poison.groups[:count]
        return model.classifier.partitioner_.assign(samples, groups=groups), sample_digests(samples)

    def _trained(self, data: PartitionedData, which: list[int]) -> NDArray[Any]:
        """Train the members `which`, and return their votes."""
        poisoned = copy(self._model.classifier)
        poisoned.ensemble_ = poisoned._train(data, which)
        votes: NDArray[Any] = poisoned.votes(self._samples)
        return votes

    def _poisoned(
        self,
        which: list[int] | None,
        count: int,
        places: NDArray[np.int64],
        digests: NDArray[np.uint8],
    ) -> PartitionedData:
        """Return the partitions `which`, or all, after `count` rows of the attack."""
        clean, poison, classifier = self._model.data, self._attack.poison, self._model.classifier
        assignment = clean.assignment
        stays = np.ones(clean.n_rows, dtype=np.bool_)
        if poison.leaves is not None:
            stays[poison.leaves[:count]] = False
        arrives = np.ones(count, dtype=np.bool_)
        if which is not None and classifier.context_ is None:
            stays &= np.isin(assignment, which)
            arrives = np.isin(places, which)
        old, new = np.flatnonzero(stays), np.flatnonzero(arrives)
        samples = take_rows(as_container(clean.X), old)
        if poison.leaves is None:
            arrivals = take_rows(self._attack.samples(count), new)
        else:
            arrivals = take_rows(as_container(clean.X), poison.leaves[new])
        labels = np.searchsorted(classifier.classes_, poison.y[new])
        return PartitionedData.build(
            stacked([samples, arrivals]),
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

    `changes` retrains on an attack of a size and says whether the prediction changed. The certified
    `radius` and the next size are always tried, if no smaller one succeeds. A larger attack need
    not succeed where a smaller one does: the first change is the smallest one found.

    Examples
    --------
    >>> trace = first_change(lambda size: size >= 12, radius=7, limit=100)
    >>> trace.first, trace.within(7)
    (12, (5, 0))
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
    """Return growing attack sizes up to `limit`, the radius and the next one among them.

    Examples
    --------
    >>> ladder(radius=7, limit=40)
    [1, 2, 3, 5, 7, 8, 13, 21, 34, 40]
    """
    sizes = {limit, min(radius, limit), min(radius + 1, limit)}
    step, following = 1, 2
    while step <= limit:
        sizes.add(step)
        step, following = following, step + following
    return sorted(size for size in sizes if size > 0)
