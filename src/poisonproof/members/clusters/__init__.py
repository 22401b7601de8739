"""Clusters of unlabeled samples, and the classes that labels assign to them."""

from __future__ import annotations

from poisonproof.members.clusters.assignment import (
    RULES,
    AssignmentRule,
    assignment_radius,
    best_assignment,
    certify_clusters,
)
from poisonproof.members.clusters.kmeans import KMeansClusters
from poisonproof.members.clusters.mixture import MixtureClusters
from poisonproof.members.clusters.spectral import CLUSTERERS, SpectralClusters, make_clusterer

__all__ = [
    "CLUSTERERS",
    "RULES",
    "AssignmentRule",
    "KMeansClusters",
    "MixtureClusters",
    "SpectralClusters",
    "assignment_radius",
    "best_assignment",
    "certify_clusters",
    "make_clusterer",
]
