"""Weightings and clusterers of one's own: what cannot vote is refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier, WeightedVoteClassifier
from poisonproof.estimators.certifying import certify_runoff
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.clusters import SpectralClusters
from poisonproof.members.weights import WalkWeights

X, y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 200), slice(1500, 1520)


class Constant(BaseEstimator):
    """Gives all samples one weight."""

    def __init__(self, weight: Any = 1, n_columns: int | None = None) -> None:
        self.weight = weight
        self.n_columns = n_columns

    def fit(self, X: Any) -> Any:
        self.n_samples_ = len(X) if self.n_columns is None else self.n_columns
        return self

    def integers(self, X: Any) -> Any:
        return np.full((len(X), self.n_samples_), self.weight)


@pytest.mark.parametrize("target", [None, 4])
@pytest.mark.parametrize(
    "weights", [Constant(0.4), Constant(np.nan), Constant(2**62), Constant(1, 3), Constant(1, 500)]
)
def test_weights_that_are_no_integers_of_the_samples_are_refused(weights: Any, target: Any) -> None:
    clf = WeightedVoteClassifier(weights=weights, classes=range(10)).fit(X[TRAIN], y[TRAIN])
    with pytest.raises(InvalidInputError, match="one for every row and training sample"):
        clf.certify(X[TEST], target=target)


def test_long_integers_are_halved_until_sums_are_exact() -> None:
    small, large = (
        WeightedVoteClassifier(weights=Constant(size), classes=range(10))
        .fit(X[TRAIN], y[TRAIN])
        .certify(X[TEST], target=4)
        for size in (2**10, 2**61)
    )
    np.testing.assert_array_equal(small.labels, large.labels)
    np.testing.assert_array_equal(small.radius, large.radius)


@pytest.mark.parametrize("weights", ["walks", WalkWeights, KMeans(3), 5])
def test_what_is_no_weighting_is_refused_before_anything_is_learned(weights: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"weights is WalkWeights\(\.\.\.\)"):
        WeightedVoteClassifier(weights=weights, classes=range(10)).fit(X[TRAIN], y[TRAIN])


class Signs(ClusterMixin, BaseEstimator):
    """Numbers samples by a column: -1 for noise, and numbers beyond those that were fitted."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.labels_ = self.predict(X)
        return self

    def predict(self, X: Any) -> Any:
        return X[:, 0].astype(int)


def rows(*clusters: int) -> Any:
    return np.column_stack([clusters, np.arange(len(clusters))]).astype(float)


def test_samples_without_a_cluster_are_refused_and_not_counted_for_the_last() -> None:
    clf = ClusterVoteClassifier(clusterer=Signs(), classes=[0, 1])
    with pytest.raises(InvalidInputError, match="leaves 1 of 4 samples without a cluster"):
        clf.fit(rows(0, 1, -1, 1), [0, 1, 0, 1])


@pytest.mark.parametrize("strange", [-1, 2])
def test_a_test_row_outside_all_clusters_is_named(strange: int) -> None:
    clf = ClusterVoteClassifier(clusterer=Signs(), classes=[0, 1]).fit(rows(0, 1, 1), [0, 1, 1])
    assert clf.predict(rows(0, 1)).tolist() == [0, 1]
    with pytest.raises(InvalidRowsError, match=f"row 1 of X the cluster {strange}"):
        clf.certify(rows(0, strange))


class Empty(Signs):
    """Says how many clusters there are."""

    def __init__(self, n_clusters: int = 3) -> None:
        self.n_clusters = n_clusters

    def fit(self, X: Any, y: Any = None) -> Any:
        self.width_ = X.shape[1]
        return self


def test_clusters_in_a_pipeline_that_hold_no_training_row_still_have_a_class() -> None:
    clusterer = make_pipeline(FunctionTransformer(), Empty(n_clusters=3))
    clf = ClusterVoteClassifier(clusterer=clusterer, classes=[0, 1]).fit(rows(0, 1), [0, 1])
    assert clf.table_.shape == (3, 2)
    assert clf.certify(rows(2)).radius.tolist() == [0]


@pytest.mark.parametrize("wrong", [{"n_clusters": 2.5}, {"n_clusters": "3"}, {"n_neighbors": None}])
def test_parameters_of_clusters_are_whole_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="is an integer of at least 1"):
        SpectralClusters(**wrong).fit(X[TRAIN])


def test_a_run_off_of_weighted_rows_is_refused_in_words() -> None:
    clf = WeightedVoteClassifier(classes=range(10)).fit(X[TRAIN], y[TRAIN])
    with pytest.raises(InvalidInputError, match="needs members that score classes"):
        certify_runoff(clf, X[TEST])  # type: ignore[arg-type]


def test_a_device_that_would_not_be_used_is_refused() -> None:
    clf = ClusterVoteClassifier(clusterer=Signs(), classes=[0, 1], device="cpu")
    with pytest.raises(InvalidInputError, match="device='cpu'"):
        clf.fit(rows(0, 1), [0, 1])


@pytest.mark.parametrize("device", ["no-such-device", 10**300], ids=["name", "number"])
def test_a_device_that_is_none_is_refused_in_words(device: Any) -> None:
    pytest.importorskip("torch")
    clf = NeighborVoteClassifier(classes=[0, 1], device=device).fit(rows(0, 1), [0, 1])
    with pytest.raises(InvalidInputError, match="torch cannot compute"):
        clf.predict(rows(0, 1))
