"""Maps in front of the members: users' own, and learned ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.certificates.threats import UNTOUCHED_MAP

X, y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, 1500)


def noisy(rows: Any) -> Any:
    """Shift all rows by one random vector, as augmentation may."""
    return rows + np.random.normal(0, 1, np.shape(rows)[1])  # noqa: NPY002


def model() -> DPAClassifier:
    noise = FunctionTransformer(noisy)
    return DPAClassifier(KNeighborsClassifier(1), 20, classes=range(10), features=noise)


def test_the_draws_of_a_map_in_one_partition_move_no_other_member() -> None:
    before = model().fit(X[TRAIN], y[TRAIN])
    certificates = before.certify(X[TEST])
    rows = X[:400] + 0.5
    rows = rows[before.partitioner_.assign(rows) == 0][:8]
    labels = np.append(y[TRAIN], np.zeros(len(rows), int))
    after = model().fit(np.concatenate([X[TRAIN], rows]), labels)
    digests = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    assert [i for i, (one, other) in enumerate(digests) if one != other] == [0]
    turned = certificates.labels != after.certify(X[TEST]).labels
    assert not (turned & (certificates.radius >= 1)).any()


def test_a_map_that_draws_gives_the_same_votes_every_time() -> None:
    fitted = model().fit(X[TRAIN], y[TRAIN])
    assert np.array_equal(fitted.votes(X[TEST]), fitted.votes(X[TEST]))


@pytest.mark.parametrize("kind", [ClusterVoteClassifier, WeightedVoteClassifier])
def test_a_map_that_draws_maps_training_and_test_rows_alike_every_time(kind: Any) -> None:
    fitted = kind(features=FunctionTransformer(noisy), classes=range(10)).fit(X[TRAIN], y[TRAIN])
    asked = fitted._mapped_samples(X[TEST])
    np.testing.assert_array_equal(fitted._mapped_samples(X[TEST]), asked)
    np.testing.assert_array_equal(fitted.predict(X[TEST]), fitted.predict(X[TEST]))
    drawn = asked - X[TEST]
    np.testing.assert_allclose(drawn, np.tile(drawn[0], (300, 1)), atol=1e-12)


@pytest.mark.parametrize("kind", [ClusterVoteClassifier, SSDPAClassifier, WeightedVoteClassifier])
def test_a_map_that_works_in_place_maps_as_its_copying_twin(kind: Any) -> None:
    found = []
    for copy in (True, False):
        features = make_pipeline(StandardScaler(copy=copy), PCA(9, copy=copy))
        fitted = kind(features=features, classes=range(10)).fit(X[TRAIN].copy(), y[TRAIN])
        found.append(fitted.certify(X[TEST].copy()))
    np.testing.assert_array_equal(found[0].labels, found[1].labels)
    np.testing.assert_array_equal(found[0].radius, found[1].radius)


class ThreadCount(TransformerMixin, BaseEstimator):
    """Adds how many threads BLAS has."""

    def fit(self, rows: Any) -> Any:
        return self

    def transform(self, rows: Any) -> Any:
        blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        return np.column_stack([rows, np.full(len(rows), max(blas))])


@pytest.mark.parametrize("kind", [ClusterVoteClassifier, SSDPAClassifier, WeightedVoteClassifier])
def test_test_rows_are_mapped_on_one_thread_as_training_rows_are(kind: Any) -> None:
    fitted = kind(features=ThreadCount(), classes=range(10)).fit(X[TRAIN], y[TRAIN])
    with threadpool_limits(2):
        asked = (
            fitted._member_samples(X[TEST])
            if kind is SSDPAClassifier
            else fitted._mapped_samples(X[TEST])
        )
    assert (asked[:, -1] == 1).all()


LATE = """
import sys
import numpy as np
import poisonproof
from sklearn.base import BaseEstimator, TransformerMixin

class Late(TransformerMixin, BaseEstimator):
    def fit(self, X):
        import torch
        self.drawn_, self.threads_ = float(torch.rand(1)), torch.get_num_threads()
        return self
    def transform(self, X):
        return X

X, y = np.random.default_rng(0).random((30, 2)), np.arange(30) % 2
kind = getattr(poisonproof, sys.argv[1])
for _ in range(2):
    fitted = kind(features=Late(), classes=range(2)).fit(X, y).features_
    print(fitted.drawn_, fitted.threads_)
"""


@pytest.mark.parametrize(
    "kind", ["ClusterVoteClassifier", "SSDPAClassifier", "WeightedVoteClassifier"]
)
def test_features_that_load_torch_are_learned_as_if_it_had_been_there(kind: str) -> None:
    """A second fit, on flipped labels, finds torch loaded; it must learn the same features."""
    pytest.importorskip("torch")
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    command = [sys.executable, "-W", "ignore", "-c", LATE, kind]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, second = found.stdout.splitlines()
    assert first == second
    assert first.endswith(" 1")


def test_an_update_below_a_map_that_draws_equals_a_fit() -> None:
    features = make_pipeline(PCA(16), FunctionTransformer(noisy))
    ensemble = SSDPAClassifier(KNeighborsClassifier(1), features, 20, classes=range(10))
    flipped = np.where(np.arange(1200) == 7, (y[TRAIN] + 1) % 10, y[TRAIN])
    fitted = clone(ensemble).fit(X[TRAIN], flipped)
    updated = clone(ensemble).fit(X[TRAIN], y[TRAIN])
    updated.update(add=(X[7:8], flipped[7:8]), remove=(X[7:8], y[7:8]))
    assert updated.ensemble_.digests() == fitted.ensemble_.digests()


def test_learned_features_may_come_in_frames() -> None:
    with config_context(transform_output="pandas"):
        fitted = SSDPAClassifier(GaussianNB(), PCA(8), 10, classes=range(10)).fit(
            X[TRAIN], y[TRAIN]
        )
        framed = fitted.votes(X[TEST])
    usual = SSDPAClassifier(GaussianNB(), PCA(8), 10, classes=range(10)).fit(X[TRAIN], y[TRAIN])
    assert np.array_equal(framed, usual.votes(X[TEST]))


def test_a_learned_map_inside_the_members_is_an_assumption_of_the_certificate() -> None:
    """Whoever could insert rows where the map was learned reaches all members at once."""
    learned = pytest.importorskip("poisonproof.networks").LearnedFeatures("folder")
    fitted = DPAClassifier(GaussianNB(), 5, classes=range(10)).fit(X[TRAIN], y[TRAIN])
    assert UNTOUCHED_MAP not in fitted.certify(X[TEST]).threat.assumptions
    fitted.estimator = make_pipeline(learned, GaussianNB())
    assert UNTOUCHED_MAP in fitted.certify(X[TEST]).threat.assumptions
