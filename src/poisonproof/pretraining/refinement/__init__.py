"""Clusters refined without labels, from features learned without labels."""

from poisonproof.pretraining.refinement.clusterer import LearnedClusters
from poisonproof.pretraining.refinement.network import ClusterNetwork, load_clusters
from poisonproof.pretraining.refinement.recipes import REFINEMENT, refinement_recipe
from poisonproof.pretraining.refinement.refining import refine_clusters
from poisonproof.pretraining.refinement.specification import RefineSpec

__all__ = [
    "REFINEMENT",
    "ClusterNetwork",
    "LearnedClusters",
    "RefineSpec",
    "load_clusters",
    "refine_clusters",
    "refinement_recipe",
]
