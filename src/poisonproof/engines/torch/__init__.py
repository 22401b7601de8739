"""How deep members are trained and asked."""

from __future__ import annotations

from poisonproof.extras import needing

with needing("torch", "torch"):
    import torch as _torch  # noqa: F401 - only to name the missing extra

from poisonproof.engines.torch.ensemble import TorchEnsemble
from poisonproof.engines.torch.learner import TorchLearner

__all__ = ["TorchEnsemble", "TorchLearner"]
