"""The contract between the data of one partition and the member it trains.

A *learner* is a deterministic rule. Given one partition and a seed it returns one member;
nothing else may reach the member. Learners that can train many members in one computation
implement `BatchedLearner`; they owe the same law, bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.counting import ABSTAIN
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.progress import Progress

__all__ = [
    "ABSTAIN",
    "ArrayEnsemble",
    "BatchedLearner",
    "Ensemble",
    "Finished",
    "Learner",
    "Member",
]


class Member(ABC):
    """One fitted f_i: a function from samples to votes."""

    @abstractmethod
    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return one class index per row of `X`, `ABSTAIN` where there is none."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hexadecimal digest of everything that decides this member's votes."""

    @property
    def failure(self) -> str | None:
        """Why this member abstains everywhere, or None."""
        return None


class Ensemble(ABC):
    """The k fitted members of one model, in the order of their partitions."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of members, k."""

    @abstractmethod
    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k)."""

    @abstractmethod
    def digests(self) -> list[str]:
        """Return one digest per member."""

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members."""
        everyone = self.digests()
        return [everyone[index] for index in which]

    @abstractmethod
    def failures(self) -> dict[int, str]:
        """Return the reason of every member that abstains because its learner raised."""

    @abstractmethod
    def replaced(self, which: Sequence[int], members: Ensemble) -> Ensemble:
        """Return a copy in which member ``which[j]`` is member j of `members`."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold, besides the method's own assumptions, for members to obey the law."""
        return ()


Finished = Callable[[Sequence[int], Ensemble], None]
"""Told of members as soon as they are trained: their partitions, and an ensemble of as many."""


class ArrayEnsemble(Ensemble):
    """Members that are nothing but arrays, so that the store need not know what they do."""

    family: ClassVar[str]
    """What rebuilds them, by the name the store knows it."""

    @abstractmethod
    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return JSON values and named arrays from which the same members can be rebuilt.

        ``values["members"]`` lists one JSON object per member, and an array named ``"3/weights"``
        belongs to member 3 alone; all other values and arrays are shared. So a store can keep,
        replace and forget every member by itself.
        """


class Learner(ABC):
    """What a member is: a deterministic function of one partition and a seed."""

    @abstractmethod
    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""

    @abstractmethod
    def fit_member(self, partition: Partition, n_classes: int, seed: int) -> Member:
        """Train one member on one non-empty partition of at least two classes."""


class BatchedLearner(ABC):
    """A learner that trains many members in one computation.

    Guarantee
    ---------
    Member i of the result is a function of ``data[i]``, `n_classes` and `seed` alone: not of the
    other partitions' contents or sizes, of `which`, or of the order of the work.
    """

    @abstractmethod
    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""

    @abstractmethod
    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None,
        progress: Progress,
    ) -> Ensemble:
        """Train the members of the partitions `which`; the result has ``len(which)`` members.

        Every partition is allowed, the empty ones too: those members abstain.
        """
