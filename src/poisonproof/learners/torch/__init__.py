"""What a deep member is: specification, networks, streams, augmentation."""

from __future__ import annotations

from poisonproof.learners.torch.specification import Augmentation, TorchSpec

__all__ = ["Augmentation", "TorchSpec"]
