"""A model under growing attacks: members whose partitions an attack changes are trained again."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.attacks.poison import Poison
from poisonproof.certificates import certify_votes
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import PartitionedData, sample_digests
from poisonproof.partition.containers import as_container, take_rows
from poisonproof.partition.shards import stacked

__all__ = ["CleanModel", "PoisonedModel", "WrittenAttack"]

_FIRST_BLOCK = 64


@dataclass(frozen=True, eq=False)
class CleanModel:
    """A classifier fitted on clean rows, and those rows in their partitions.

    Attributes
    ----------
    classifier : DPAClassifier or SSDPAClassifier
        Fitted.
    data : PartitionedData
        The rows it was fitted on, in the caller's order.
    """

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

    @cached_property
    def assignment(self) -> NDArray[np.int64]:
        """The partition of each clean row, shape (m,)."""
        return self.data.assignment

    def under(self, attack: WrittenAttack, questions: Any) -> PoisonedModel:
        """Return this model under an attack, with the questions that the attack is made for."""
        return PoisonedModel(self, attack, questions)


class WrittenAttack:
    """Poisoned rows as a model takes them, turned into samples as far as they are needed.

    Parameters
    ----------
    poison : Poison
        The attack, with rows as an attacker writes them.
    encode : callable
        Turns rows into samples, each row by itself.
    """

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
    """What a model answers to a few questions after the first units of an attack.

    A member is a function of its own partition, so the members of partitions that hold the same
    rows as before are kept, from the clean model and from other sizes of the same attack. That
    they may be kept is the law of the library; `check_from_scratch` holds one size against
    training everything again.

    Parameters
    ----------
    model : CleanModel
        The model that is attacked.
    attack : WrittenAttack
        The attack.
    questions : array of shape (n, ...)
        The samples that are asked.
    """

    def __init__(self, model: CleanModel, attack: WrittenAttack, questions: Any) -> None:
        self._model, self._attack, self._questions = model, attack, questions
        self._clean_votes = model.classifier.votes(questions)
        # The first rows of an attack are the attack of a smaller size, so the number of its rows
        # that a partition has got says which.
        self._known: dict[tuple[int, int], NDArray[Any]] = {}

    def labels(self, size: int) -> NDArray[Any]:
        """Return the answers after `size` units of the attack, shape (n,)."""
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
            for index, answers in zip(missing, trained.T, strict=True):
                self._known[index, arrived[index]] = answers
        for index in touched:
            votes[:, index] = self._known[index, arrived[index]]
        return votes

    def check_from_scratch(self, size: int, groups: Any) -> None:
        """Train all members again on the poisoned rows, and compare every vote.

        Parameters
        ----------
        size : int
            Units of the attack.
        groups : array or None
            Who contributed each row after that many units.

        Raises
        ------
        GuaranteeError
            If a member that had no reason to change votes differently.
        """
        classifier, count = self._model.classifier, self._attack.poison.n_rows(size)
        data = self._poisoned(None, count, *self._placed(count))
        again = clone(classifier).fit(data.X, classifier.classes_[data.y], groups=groups)
        differ = (again.votes(self._questions) != self.votes(size)).any(axis=0)
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
            return model.assignment[rows], model.data.digests[rows]
        samples = self._attack.samples(count)
        groups = None if poison.groups is None else poison.groups[:count]
        return model.classifier.partitioner_.assign(samples, groups=groups), sample_digests(samples)

    def _trained(self, data: PartitionedData, which: list[int]) -> NDArray[Any]:
        """Train the members `which`, and ask them."""
        asked = copy(self._model.classifier)
        asked.ensemble_ = asked._train(data, which)
        votes: NDArray[Any] = asked.votes(self._questions)
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
        assignment = self._model.assignment
        stays = np.ones(clean.n_rows, dtype=np.bool_)
        if poison.leaves is not None:
            stays[poison.leaves[:count]] = False
        arrives = np.ones(count, dtype=np.bool_)
        if which is not None and not classifier._features_see_all_rows():
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
