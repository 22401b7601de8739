"""The fitted members that share a frozen first part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.engines.torch.rows import as_samples
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.voting import votes_of
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import ABSTAIN, ArrayEnsemble, Ensemble
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tail_specification import TailSpec
from poisonproof.pretraining.tail_training import ask_stack
from poisonproof.progress import Progress, Silent

__all__ = ["TailEnsemble", "restore_members"]


class TailEnsemble(ArrayEnsemble):
    """Members of one specification on one frozen part, in the order of their partitions.

    Parameters
    ----------
    spec : TailSpec
        The law they were trained under; it also decides how they vote.
    frozen : FrozenNetwork
        What they share.
    members : sequence of MemberState
        One per partition.
    """

    family: ClassVar[str] = "tail"

    def __init__(
        self, spec: TailSpec, frozen: FrozenNetwork, members: Sequence[MemberState]
    ) -> None:
        self.spec, self.frozen = spec, frozen
        self.members = list(members)

    def __len__(self) -> int:
        return len(self.members)

    def votes(
        self, X: Any, *, n_jobs: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k)."""
        samples = as_samples(X, self.spec.schedule)
        votes = np.full((len(samples), len(self)), ABSTAIN, dtype=np.int16)
        listener = progress or Silent()
        listener.start(len(self), "Voting")
        try:
            for places, rows, scores in self._blocks(samples):
                votes[rows, places] = votes_of(scores).T
                if rows.stop == len(samples):
                    listener.advance(len(places))
        finally:
            listener.stop()
        return votes

    def scores(self, X: Any) -> NDArray[np.float32]:
        """Return every member's class probabilities, shape (n, k, C); NaN where it abstains."""
        samples = as_samples(X, self.spec.schedule)
        out = np.full((len(samples), len(self), self.spec.n_classes), np.nan, dtype=np.float32)
        for places, rows, scores in self._blocks(samples):
            soft = torch.softmax(scores.float(), dim=-1).cpu().numpy()
            out[rows, places] = soft.transpose(1, 0, 2)
        return out

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[tuple[list[int], slice, Tensor]]:
        device = require_device(self.spec.schedule)
        voters = [place for place, member in enumerate(self.members) if not member.abstains]
        width = self.spec.stack_width
        with deterministic(self.spec.schedule):
            features = self.frozen.rows(torch.from_numpy(samples).to(device))
            for start in range(0, len(voters), width):
                places = voters[start : start + width]
                group = [self.members[place] for place in places]
                for rows, scores in ask_stack(self.spec, group, features):
                    yield places, rows, scores

    def digests(self) -> list[str]:
        """Return one digest per member: of its weights and its law, the frozen part included."""
        law = self.spec.digest()[:16]
        return [f"{law}:{member.digest()}" for member in self.members]

    def failures(self) -> dict[int, str]:
        """Return why members with rows abstain."""
        return {
            place: member.failure
            for place, member in enumerate(self.members)
            if member.failure is not None
        }

    def replaced(self, which: Sequence[int], members: Ensemble) -> TailEnsemble:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, TailEnsemble) or members.spec != self.spec:
            raise InvalidInputError(
                "Members can only be replaced by members of the same specification and features."
            )
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return TailEnsemble(self.spec, self.frozen, copy)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays, the frozen part once."""
        meta = {
            "spec": self.spec.to_json(),
            "features": {"spec": self.frozen.spec.to_json(), "law": dict(self.frozen.law)},
            "members": [{"index": m.index, "failure": m.failure} for m in self.members],
        }
        arrays = {f"frozen/{name}": array for name, array in self.frozen.tensors.items()}
        for place, member in enumerate(self.members):
            arrays |= {f"{place}/{name}": np.asarray(a) for name, a in member.tensors.items()}
        return meta, arrays


def restore_members(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TailEnsemble:
    """Return the ensemble that `TailEnsemble.export` described."""
    tensors: list[dict[str, NDArray[Any]]] = [{} for _ in meta["members"]]
    shared: dict[str, NDArray[Any]] = {}
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        (shared if place == "frozen" else tensors[int(place)])[name] = np.array(array)
    about = meta["features"]
    frozen = FrozenNetwork(PretrainSpec.from_json(about["spec"]), shared, about["law"])
    members = [
        MemberState(entry["index"], own, entry["failure"])
        for entry, own in zip(meta["members"], tensors, strict=True)
    ]
    return TailEnsemble(TailSpec.from_json(meta["spec"]), frozen, members)
