"""What all ensembles of deep members have in common: they are asked in blocks and share a law."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.engines.torch.rows import as_samples
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.voting import Block, votes_of
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import ABSTAIN, ArrayEnsemble, Ensemble
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.progress import Progress, reporting

__all__ = ["DeepMembers", "member_states"]

Arrays = dict[str, NDArray[Any]]


class Law(Protocol):
    """Everything that decides a member's bits, its partition and the seed apart."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""

    def digest(self) -> str:
        """Return its SHA-256."""


class DeepMembers(ArrayEnsemble):
    """Deep members of one law, in the order of their partitions.

    Parameters
    ----------
    spec : Law
        The law they were trained under; it also decides how they vote.
    members : sequence of MemberState
        One per partition.
    """

    def __init__(self, spec: Law, members: Sequence[MemberState]) -> None:
        self.spec = spec
        self.members = list(members)

    @property
    @abstractmethod
    def schedule(self) -> TorchSpec:
        """Shape and scale of the samples, and the label set."""

    @abstractmethod
    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        """Yield scores, some members on some rows at a time; abstaining members are left out."""

    @abstractmethod
    def _with(self, members: Sequence[MemberState]) -> Self:
        """Return other members of the same law."""

    def __len__(self) -> int:
        return len(self.members)

    def votes(
        self, X: Any, *, n_jobs: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k); scores are never kept."""
        samples = as_samples(X, self.schedule)
        votes = np.full((len(samples), len(self)), ABSTAIN, dtype=np.int16)
        with reporting(progress, len(self), "Voting") as listener:
            for places, rows, scores in self._blocks(samples):
                votes[rows, places] = votes_of(scores).T
                if rows.stop == len(samples):
                    listener.advance(len(places))
        return votes

    def scores(self, X: Any) -> NDArray[np.float32]:
        """Return every member's class probabilities, shape (n, k, C); NaN where it abstains."""
        samples = as_samples(X, self.schedule)
        out = np.full((len(samples), len(self), self.schedule.n_classes), np.nan, dtype=np.float32)
        for places, rows, scores in self._blocks(samples):
            soft = torch.softmax(scores.float(), dim=-1).cpu().numpy()
            out[rows, places] = soft.transpose(1, 0, 2)
        return out

    def digests(self) -> list[str]:
        """Return one digest per member: of its weights, normalisation and law."""
        law = self.spec.digest()[:16]
        return [f"{law}:{member.digest()}" for member in self.members]

    def failures(self) -> dict[int, str]:
        """Return why members with rows abstain."""
        return {
            place: member.failure
            for place, member in enumerate(self.members)
            if member.failure is not None
        }

    def replaced(self, which: Sequence[int], members: Ensemble) -> Self:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, type(self)) or members.spec != self.spec:
            raise InvalidInputError(
                "Deep members can only be replaced by members of the same specification."
            )
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return self._with(copy)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything as JSON values and arrays named ``member/tensor``."""
        meta = {
            "spec": self.spec.to_json(),
            "members": [{"index": m.index, "failure": m.failure} for m in self.members],
        }
        arrays = {
            f"{place}/{name}": np.asarray(array)
            for place, member in enumerate(self.members)
            for name, array in member.tensors.items()
        }
        return meta, arrays


def member_states(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[MemberState]:
    """Return the members that `DeepMembers.export` described; arrays are not copied."""
    tensors: list[Arrays] = [{} for _ in meta["members"]]
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        tensors[int(place)][name] = array
    return [
        MemberState(entry["index"], own, entry["failure"])
        for entry, own in zip(meta["members"], tensors, strict=True)
    ]
