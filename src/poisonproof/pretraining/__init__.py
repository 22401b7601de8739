"""Features learned from samples without labels, and members that stand on them."""

from __future__ import annotations

from poisonproof.extras import needing

with needing("torch", "torch"):
    import torch as _torch  # noqa: F401 - only to name the missing extra

from poisonproof.pretraining.frozen import FrozenNetwork, load_features
from poisonproof.pretraining.head_learner import HeadLearner
from poisonproof.pretraining.recipes import PRETRAINING, pretraining_recipe
from poisonproof.pretraining.refinement import (
    REFINEMENT,
    ClusterNetwork,
    LearnedClusters,
    RefineSpec,
    load_clusters,
    refine_clusters,
    refinement_recipe,
)
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tail_learner import TailLearner
from poisonproof.pretraining.training import Watch, train_features
from poisonproof.pretraining.transformer import LearnedFeatures
from poisonproof.pretraining.view_table import ViewTable

__all__ = [
    "PRETRAINING",
    "REFINEMENT",
    "ClusterNetwork",
    "FrozenNetwork",
    "HeadLearner",
    "LearnedClusters",
    "LearnedFeatures",
    "PretrainSpec",
    "RefineSpec",
    "TailLearner",
    "ViewTable",
    "Watch",
    "load_clusters",
    "load_features",
    "pretraining_recipe",
    "refine_clusters",
    "refinement_recipe",
    "train_features",
]
