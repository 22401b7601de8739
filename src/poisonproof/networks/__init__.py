"""How deep members are trained and asked."""

from __future__ import annotations

from poisonproof.exceptions import needing

with needing("torch", "torch"):
    import torch as _torch  # noqa: F401 - only to name the missing extra

from poisonproof.networks.ensemble import TorchEnsemble
from poisonproof.networks.learner import TorchLearner
from poisonproof.networks.pretraining.frozen import FrozenNetwork, LearnedFeatures, load_features
from poisonproof.networks.pretraining.loop import Watch, train_features
from poisonproof.networks.pretraining.pretrain_spec import (
    PRETRAINING,
    PretrainSpec,
    pretraining_recipe,
)
from poisonproof.networks.specification import Augmentation, TorchSpec

__all__ = [
    "PRETRAINING",
    "Augmentation",
    "FrozenNetwork",
    "LearnedFeatures",
    "PretrainSpec",
    "TorchEnsemble",
    "TorchLearner",
    "TorchSpec",
    "Watch",
    "load_features",
    "pretraining_recipe",
    "train_features",
]
