"""The fitted deep members of one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.engines.torch.deep_members import DeepMembers, member_states
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.voting import Block, Stacks, score_blocks
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["TorchEnsemble", "restore_members"]


class TorchEnsemble(DeepMembers):
    """Deep members of one specification, in the order of their partitions.

    Parameters
    ----------
    spec : TorchSpec
        The law they were trained under; it also decides how they vote.
    members : sequence of MemberState
        One per partition.
    """

    family: ClassVar[str] = "torch"
    spec: TorchSpec

    def __init__(self, spec: TorchSpec, members: Sequence[MemberState]) -> None:
        super().__init__(spec, members)
        self._stacks: Stacks = {}

    @property
    def schedule(self) -> TorchSpec:
        """The law itself."""
        return self.spec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        return score_blocks(self.spec, self.members, samples, self._stacks)

    def _with(self, members: Sequence[MemberState]) -> Self:
        return type(self)(self.spec, members)


def restore_members(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TorchEnsemble:
    """Return the ensemble that `TorchEnsemble.export` described."""
    return TorchEnsemble(TorchSpec.from_json(meta["spec"]), member_states(meta, arrays))
