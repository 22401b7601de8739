"""The scikit-learn contract: classifiers that certify what they predict."""

from poisonproof.estimators.cluster_votes import ClusterVoteClassifier
from poisonproof.estimators.committees import certify_committee
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.estimators.finite_aggregation import FiniteAggregationClassifier
from poisonproof.estimators.linear_labels import LinearLabelClassifier
from poisonproof.estimators.loading import load
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.rows import Rows
from poisonproof.estimators.runoff import certify_runoff, member_scores
from poisonproof.estimators.ssdpa import SSDPAClassifier
from poisonproof.estimators.weighted_votes import WeightedVoteClassifier

__all__ = [
    "ClusterVoteClassifier",
    "DPAClassifier",
    "FiniteAggregationClassifier",
    "LinearLabelClassifier",
    "NeighborVoteClassifier",
    "Rows",
    "SSDPAClassifier",
    "WeightedVoteClassifier",
    "certify_committee",
    "certify_runoff",
    "load",
    "member_scores",
]
