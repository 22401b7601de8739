"""The fitted members that share a frozen first part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.engines.torch.deep_members import DeepMembers, member_states
from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.voting import Block
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tail_specification import TailSpec
from poisonproof.pretraining.tail_training import ask_stack

__all__ = ["TailEnsemble", "restore_members"]

_SHARED = "frozen/"


class TailEnsemble(DeepMembers):
    """Members of one specification on one frozen part, in the order of their partitions.

    Parameters
    ----------
    spec : TailSpec
        The law they were trained under, the frozen part included; it also decides how they vote.
    frozen : FrozenNetwork
        What they share.
    members : sequence of MemberState
        One per partition.
    """

    family: ClassVar[str] = "tail"
    spec: TailSpec

    def __init__(
        self, spec: TailSpec, frozen: FrozenNetwork, members: Sequence[MemberState]
    ) -> None:
        super().__init__(spec, members)
        self.frozen = frozen

    @property
    def schedule(self) -> TorchSpec:
        """Shape and scale of the samples, and the label set."""
        return self.spec.schedule

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        device = require_device(self.schedule)
        voters = [place for place, member in enumerate(self.members) if not member.abstains]
        width = self.spec.stack_width
        with deterministic(self.schedule):
            features = self.frozen.rows(torch.from_numpy(samples).to(device))
            for start in range(0, len(voters), width):
                places = voters[start : start + width]
                group = [self.members[place] for place in places]
                for rows, scores in ask_stack(self.spec, group, features):
                    yield places, rows, scores

    def _with(self, members: Sequence[MemberState]) -> Self:
        return type(self)(self.spec, self.frozen, members)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays, the frozen part once."""
        meta, arrays = super().export()
        about = {"spec": self.frozen.spec.to_json(), "law": dict(self.frozen.law)}
        shared = {f"{_SHARED}{name}": array for name, array in self.frozen.tensors.items()}
        return {**meta, "features": about}, {**shared, **arrays}


def restore_members(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TailEnsemble:
    """Return the ensemble that `TailEnsemble.export` described."""
    shared = {
        name.removeprefix(_SHARED): np.array(array)
        for name, array in arrays.items()
        if name.startswith(_SHARED)
    }
    own = {name: np.array(array) for name, array in arrays.items() if not name.startswith(_SHARED)}
    about = meta["features"]
    frozen = FrozenNetwork(PretrainSpec.from_json(about["spec"]), shared, about["law"])
    return TailEnsemble(TailSpec.from_json(meta["spec"]), frozen, member_states(meta, own))
