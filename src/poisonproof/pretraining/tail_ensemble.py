"""The fitted members that are the rest of a network on its frozen first part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.engines.torch.device import deterministic
from poisonproof.engines.torch.voting import Block
from poisonproof.pretraining.on_frozen_ensemble import OnFrozenEnsemble
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec
from poisonproof.pretraining.tail_specification import TailSpec
from poisonproof.pretraining.tail_training import ask_stack

__all__ = ["TailEnsemble", "restore_members"]


class TailEnsemble(OnFrozenEnsemble):
    """Members of a `TailSpec`; see `OnFrozenEnsemble`."""

    family: ClassVar[str] = "tail"
    law: ClassVar[type[OnFrozenSpec]] = TailSpec
    spec: TailSpec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        voters = [place for place, member in enumerate(self.members) if not member.abstains]
        width = self.spec.stack_width
        with deterministic(self.schedule):
            features = self._features(samples)
            for start in range(0, len(voters), width):
                places = voters[start : start + width]
                group = [self.members[place] for place in places]
                for rows, scores in ask_stack(self.spec, group, features):
                    yield places, rows, scores


restore_members = TailEnsemble.restored
