"""The fitted linear members on a frozen network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.engines.torch.device import deterministic
from poisonproof.engines.torch.voting import Block, score_blocks
from poisonproof.pretraining.head_specification import HeadSpec
from poisonproof.pretraining.on_frozen_ensemble import OnFrozenEnsemble
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec

__all__ = ["HeadEnsemble", "restore_members"]


class HeadEnsemble(OnFrozenEnsemble):
    """Members of a `HeadSpec`, which vote on images as they are; see `OnFrozenEnsemble`."""

    family: ClassVar[str] = "head"
    law: ClassVar[type[OnFrozenSpec]] = HeadSpec
    spec: HeadSpec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        with deterministic(self.schedule):
            vectors = self._features(samples).float().cpu().numpy()
        return score_blocks(self.spec.linear, self.members, vectors, {})


restore_members = HeadEnsemble.restored
