"""Neural networks as members, and features learned without labels."""

from __future__ import annotations

from poisonproof.exceptions import needing

with needing("torch", "torch"):
    import torch as _torch  # noqa: F401 - only to name the missing extra

from poisonproof.networks.ensemble import TorchEnsemble
from poisonproof.networks.learner import TorchLearner
from poisonproof.networks.pretraining.frozen import FrozenNetwork, LearnedFeatures, load_features
from poisonproof.networks.pretraining.loop import Watch, train_features
from poisonproof.networks.pretraining.pretrain_spec import PRETRAINING, PretrainSpec
from poisonproof.networks.specification import Augmentation, NetworkSpec

__all__ = [
    "PRETRAINING",
    "Augmentation",
    "FrozenNetwork",
    "LearnedFeatures",
    "NetworkSpec",
    "PretrainSpec",
    "TorchEnsemble",
    "TorchLearner",
    "Watch",
    "load_features",
    "train_features",
]
