"""The scikit-learn contract: classifiers that certify what they predict."""

from __future__ import annotations

from poisonproof.estimators.certifying import certify_runoff, member_scores
from poisonproof.estimators.cluster_votes import ClusterVoteClassifier
from poisonproof.estimators.dpa import DPAClassifier, SSDPAClassifier
from poisonproof.estimators.grid import GridClassifier
from poisonproof.estimators.loading import load
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.streaming import DiskPartitions, fit_stream, partition_stream
from poisonproof.estimators.weighted_votes import WeightedVoteClassifier

__all__ = [
    "ClusterVoteClassifier",
    "DPAClassifier",
    "DiskPartitions",
    "GridClassifier",
    "NeighborVoteClassifier",
    "SSDPAClassifier",
    "WeightedVoteClassifier",
    "certify_runoff",
    "fit_stream",
    "load",
    "member_scores",
    "partition_stream",
]
