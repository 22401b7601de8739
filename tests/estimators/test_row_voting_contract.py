"""scikit-learn's own checks for the classifiers whose voters are single rows."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import ClusterVoteClassifier, LinearLabelClassifier, NeighborVoteClassifier

CLASSIFIERS = [
    NeighborVoteClassifier(threshold=1.0, metric="euclidean"),
    NeighborVoteClassifier(threshold=0.8),
    ClusterVoteClassifier(clusterer="kmeans"),
    ClusterVoteClassifier(clusterer="mixture"),
    ClusterVoteClassifier(assignment="one_to_one"),
    LinearLabelClassifier(n_partitions=3),
]

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"  # fewer distinct samples than clusters
)


@parametrize_with_checks(CLASSIFIERS)
def test_the_classifier_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
