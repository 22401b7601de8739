"""Clusters refined without labels, from features learned without labels."""

from __future__ import annotations

from poisonproof.exceptions import needing

with needing("torch", "torch"):
    import torch as _torch  # noqa: F401 - only to name the missing extra

from poisonproof_research.networks.refine_spec import REFINEMENT, RefineSpec, refinement_recipe
from poisonproof_research.networks.refining import (
    ClusterNetwork,
    LearnedClusters,
    load_clusters,
    refine_clusters,
)

__all__ = [
    "REFINEMENT",
    "ClusterNetwork",
    "LearnedClusters",
    "RefineSpec",
    "load_clusters",
    "refine_clusters",
    "refinement_recipe",
]
