"""The fitted members that share a frozen first part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.deep_members import DeepMembers, member_states
from poisonproof.engines.torch.device import require_device
from poisonproof.engines.torch.state import MemberState
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import Ensemble
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["OnFrozenEnsemble"]

_SHARED = "frozen/"


class OnFrozenEnsemble(DeepMembers):
    """Members of one specification on one frozen part, in the order of their partitions.

    Parameters
    ----------
    spec : OnFrozenSpec
        The law they were trained under, the frozen part included; it also decides how they vote.
    frozen : FrozenNetwork
        What they share.
    members : sequence of MemberState
        One per partition.
    """

    spec: OnFrozenSpec
    law: ClassVar[type[OnFrozenSpec]]
    """What reads a stored specification."""

    def __init__(
        self, spec: OnFrozenSpec, frozen: FrozenNetwork, members: Sequence[MemberState]
    ) -> None:
        super().__init__(spec, members)
        self.frozen = frozen

    @property
    def schedule(self) -> TorchSpec:
        """Shape and scale of the samples, and the label set."""
        return self.spec.schedule

    def _features(self, samples: NDArray[np.float32]) -> Tensor:
        """Return what the frozen part makes of samples, on the device."""
        return self.frozen.rows(torch.from_numpy(samples).to(require_device(self.schedule)))

    def _with(self, members: Sequence[MemberState]) -> Self:
        return type(self)(self.spec, self.frozen, members)

    def replaced(self, which: Sequence[int], members: Ensemble) -> Self:
        """Return a copy in which member ``which[j]`` is member j of `members`.

        Both must compute the frozen part alike: its digest is that of the weights alone.
        """
        if isinstance(members, type(self)) and members.frozen.spec != self.frozen.spec:
            raise InvalidInputError(
                "Members can only be replaced by members on the same features, computed alike."
                " The weights are the same; the specifications of the features differ."
            )
        return super().replaced(which, members)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays, the frozen part once."""
        meta, arrays = super().export()
        about = {"spec": self.frozen.spec.to_json(), "law": dict(self.frozen.law)}
        shared = {f"{_SHARED}{name}": array for name, array in self.frozen.tensors.items()}
        return {**meta, "features": about}, {**shared, **arrays}

    @classmethod
    def restored(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the ensemble that `export` described."""
        shared, own = {}, {}
        for name, array in arrays.items():
            if name.startswith(_SHARED):
                shared[name.removeprefix(_SHARED)] = np.array(array)
            else:
                own[name] = np.array(array)
        about = meta["features"]
        frozen = FrozenNetwork(PretrainSpec.from_json(about["spec"]), shared, about["law"])
        return cls(cls.law.from_json(meta["spec"]), frozen, member_states(meta, own))
