"""How deep members are trained and asked."""

from __future__ import annotations

from poisonproof.exceptions import MissingExtraError

try:
    import torch as _torch  # noqa: F401 - only to name the missing extra
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

from poisonproof.engines.torch.ensemble import TorchEnsemble
from poisonproof.engines.torch.learner import TorchLearner

__all__ = ["TorchEnsemble", "TorchLearner"]
