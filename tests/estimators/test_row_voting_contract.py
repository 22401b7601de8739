"""scikit-learn's own checks for votes of rows and of labels."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier, WeightedVoteClassifier
from poisonproof.members.weights import WalkWeights

CLASSIFIERS = [
    NeighborVoteClassifier(threshold=0.8),
    ClusterVoteClassifier(clusterer="kmeans"),
    ClusterVoteClassifier(clusterer="mixture"),
    ClusterVoteClassifier(assignment="one_to_one"),
    WeightedVoteClassifier(weights=WalkWeights(5, 0.9)),
]

pytestmark = [
    # Fewer distinct samples than clusters.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@parametrize_with_checks(CLASSIFIERS)
def test_the_classifier_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
