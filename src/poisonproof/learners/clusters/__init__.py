"""Clusters of unlabeled samples, and the classes that labels assign to them."""

from poisonproof.learners.clusters.assignment import (
    RULES,
    AssignmentRule,
    assignment_radius,
    best_assignment,
)
from poisonproof.learners.clusters.certificate import certify_clusters
from poisonproof.learners.clusters.choose import CLUSTERERS, make_clusterer
from poisonproof.learners.clusters.kmeans import KMeansClusters
from poisonproof.learners.clusters.mixture import MixtureClusters
from poisonproof.learners.clusters.spectral import SpectralClusters

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
