"""scikit-learn's own checks for votes of rows, of labels, and of members on shared buckets."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier, WeightedVoteClassifier
from poisonproof.members.weights import NeighborhoodWeights, WalkWeights
from poisonproof_research.methods.finite_aggregation import FiniteAggregationClassifier
from poisonproof_research.methods.linear_labels import LinearLabelClassifier

CLASSIFIERS = [
    NeighborVoteClassifier(threshold=1.0, metric="euclidean"),
    NeighborVoteClassifier(threshold=0.8),
    ClusterVoteClassifier(clusterer="kmeans"),
    ClusterVoteClassifier(clusterer="mixture"),
    ClusterVoteClassifier(assignment="one_to_one"),
    LinearLabelClassifier(n_partitions=3),
    WeightedVoteClassifier(weights=WalkWeights(5, 0.9)),
    WeightedVoteClassifier(weights=NeighborhoodWeights(20, n_neighbors=5)),
    FiniteAggregationClassifier(n_partitions=2, degree=2),
]

pytestmark = [
    # Fewer distinct samples than clusters; rows so odd that members abstain.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning"),
]


@parametrize_with_checks(CLASSIFIERS)
def test_the_classifier_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
