"""The fitted deep members of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.engines.torch.rows import as_samples
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.voting import Stacks, score_blocks, votes_of
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import ABSTAIN, ArrayEnsemble, Ensemble
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.progress import Progress, Silent

__all__ = ["TorchEnsemble", "restore_members"]


class TorchEnsemble(ArrayEnsemble):
    """Deep members of one specification, in the order of their partitions.

    Parameters
    ----------
    spec : TorchSpec
        The law they were trained under; it also decides how they vote.
    members : sequence of MemberState
        One per partition.
    """

    family: ClassVar[str] = "torch"

    def __init__(self, spec: TorchSpec, members: Sequence[MemberState]) -> None:
        self.spec = spec
        self.members = list(members)
        self._stacks: Stacks = {}

    def __len__(self) -> int:
        return len(self.members)

    def votes(
        self, X: Any, *, n_jobs: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k); scores are never kept."""
        samples = as_samples(X, self.spec)
        votes = np.full((len(samples), len(self)), ABSTAIN, dtype=np.int16)
        listener = progress or Silent()
        listener.start(len(self), "Voting")
        try:
            for places, rows, scores in score_blocks(
                self.spec, self.members, samples, self._stacks
            ):
                votes[rows, places] = votes_of(scores).T
                if rows.stop == len(samples):
                    listener.advance(len(places))
        finally:
            listener.stop()
        return votes

    def scores(self, X: Any) -> NDArray[np.float32]:
        """Return every member's class probabilities, shape (n, k, C); NaN where it abstains."""
        samples = as_samples(X, self.spec)
        out = np.full((len(samples), len(self), self.spec.n_classes), np.nan, dtype=np.float32)
        for places, rows, scores in score_blocks(self.spec, self.members, samples, self._stacks):
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

    def replaced(self, which: Sequence[int], members: Ensemble) -> TorchEnsemble:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, TorchEnsemble) or members.spec != self.spec:
            raise InvalidInputError(
                "Deep members can only be replaced by members of the same specification."
            )
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return TorchEnsemble(self.spec, copy)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
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

    @classmethod
    def restore(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TorchEnsemble:
        """Rebuild what `export` returned."""
        tensors: list[dict[str, NDArray[Any]]] = [{} for _ in meta["members"]]
        for key, array in arrays.items():
            place, _, name = key.partition("/")
            tensors[int(place)][name] = array  # perhaps of a mapped file: not copied
        members = [
            MemberState(entry["index"], own, entry["failure"])
            for entry, own in zip(meta["members"], tensors, strict=True)
        ]
        return cls(TorchSpec.from_json(meta["spec"]), members)


def restore_members(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TorchEnsemble:
    """Return the ensemble that `TorchEnsemble.export` described."""
    return TorchEnsemble.restore(meta, arrays)
