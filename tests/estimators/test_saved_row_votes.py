"""Votes of rows and of labels: saved, loaded, updated."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    WeightedVoteClassifier,
    load,
)
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.features import FixedScale
from poisonproof.members.clusters import SpectralClusters
from poisonproof.members.weights import WalkWeights
from poisonproof.store.manifest import ModelReader

X, Y = load_digits(return_X_y=True)
X, Y = X.astype(np.float64), Y.astype(np.int64)
TRAIN, TEST = slice(0, 300), slice(1500, 1560)
DIGITS = np.arange(10)

CLASSIFIERS = {
    "neighbors": NeighborVoteClassifier(FixedScale(scale=16.0), 0.85, classes=DIGITS),
    "plain": NeighborVoteClassifier(threshold=0.8),
    "spectral": ClusterVoteClassifier(n_clusters=12, assignment="onto", classes=DIGITS),
    "own-graph": ClusterVoteClassifier(clusterer=SpectralClusters(11, n_neighbors=8)),
    "kmeans": ClusterVoteClassifier(PCA(10), 15, clusterer="kmeans", classes=DIGITS),
    "mixture": ClusterVoteClassifier(PCA(4), np.int64(12), clusterer="mixture"),
    "own-clusters": ClusterVoteClassifier(clusterer=KMeans(9, n_init=1), classes=DIGITS),
    "walks": WeightedVoteClassifier(weights=WalkWeights(8, 0.9), classes=DIGITS),
}


def fitted(name):
    return CLASSIFIERS[name].fit(X[TRAIN], Y[TRAIN])


def same_certificates(first, second):
    one, other = first.certify(X[TEST]), second.certify(X[TEST])
    return (
        np.array_equal(one.labels, other.labels)
        and np.array_equal(one.radius, other.radius)
        and np.array_equal(one.counts, other.counts)
        and one.threat == other.threat
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_loaded_model_gives_the_same_certificates(name, tmp_path):
    classifier = fitted(name)
    classifier.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert type(back) is type(classifier)
    assert same_certificates(back, classifier)
    assert back.n_features_in_ == 64
    assert (back.classes is None) == (classifier.classes is None)
    plain = {k: v for k, v in classifier.get_params().items() if np.isscalar(v)}
    assert {k: back.get_params()[k] for k in plain if k != "partitioner"} == {
        k: v for k, v in plain.items() if k != "partitioner"
    }


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_model_can_be_saved_again_after_loading(name, tmp_path):
    fitted(name).save(tmp_path / "first")
    load(tmp_path / "first").save(tmp_path / "second")
    prints = [ModelReader.open(tmp_path / at).manifest.fingerprint for at in ("first", "second")]
    assert prints[0] == prints[1]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_models_of_the_same_rows_in_any_order_have_one_fingerprint(name, tmp_path):
    """An audit says so: fit again on rows that you trust, and compare."""
    many = np.r_[TRAIN, 0:50]
    labels = np.append(Y[TRAIN], (Y[:50] + 1) % 10)
    prints = []
    for order in (np.arange(350), np.random.default_rng(0).permutation(350)):
        clone(CLASSIFIERS[name]).fit(X[many][order], labels[order]).save(tmp_path / "model")
        prints.append(ModelReader.open(tmp_path / "model").manifest.fingerprint)
    assert prints[0] == prints[1]


@pytest.mark.parametrize("name", ["neighbors", "spectral", "kmeans", "mixture", "walks"])
def test_a_changed_byte_is_an_error_and_never_another_vote(name, tmp_path):
    classifier = fitted(name)
    classifier.save(tmp_path / "model")
    for path in [tmp_path / "model/manifest.json", *(tmp_path / "model/objects").iterdir()]:
        whole = path.read_bytes()
        for position in (0, len(whole) // 3, len(whole) - 1):
            changed = bytearray(whole)
            changed[position] ^= 1
            path.write_bytes(changed)
            with pytest.raises(StoreError):
                load(tmp_path / "model").certify(X[TEST])
        path.write_bytes(whole)
    assert same_certificates(load(tmp_path / "model"), classifier)


def test_a_model_of_rows_and_an_ensemble_replace_each_other(tmp_path):
    neighbors = fitted("neighbors")
    ensemble = DPAClassifier(GaussianNB(), 5, classes=DIGITS).fit(X[TRAIN], Y[TRAIN])
    for classifier in (neighbors, ensemble, neighbors):
        classifier.save(tmp_path / "model", overwrite=True)
        assert type(load(tmp_path / "model")) is type(classifier)


def test_updated_neighbours_are_those_of_training_from_scratch(tmp_path):
    rng = np.random.default_rng(3)
    order = rng.permutation(300)
    before, gone, after = order[:200], order[150:200], np.r_[order[:150], order[200:]]
    updated = CLASSIFIERS["neighbors"].fit(X[before], Y[before])
    updated.update(add=(X[order[200:]], Y[order[200:]]), remove=(X[gone], Y[gone]))
    updated.save(tmp_path / "updated")
    scratch = CLASSIFIERS["neighbors"].fit(X[after], Y[after])
    assert same_certificates(updated, scratch)
    scratch.save(tmp_path / "scratch")
    first, second = (ModelReader.open(tmp_path / at).manifest for at in ("updated", "scratch"))
    assert first.fingerprint == second.fingerprint


def test_neighbours_are_updated_after_loading_and_copies_count(tmp_path):
    twice = np.r_[0:50, 7]
    model = CLASSIFIERS["neighbors"].fit(X[twice], Y[twice])
    model.save(tmp_path / "model")
    back = load(tmp_path / "model").update(remove=(X[7:8], Y[7:8]))
    assert back.n_rows_ == 50
    assert same_certificates(back, CLASSIFIERS["neighbors"].fit(X[:50], Y[:50]))
    wrong = (X[7:8], Y[7:8] + 1)
    with pytest.raises(InvalidRowsError, match="not in the training set"):
        back.update(add=(X[50:60], Y[50:60]), remove=wrong)
    assert back.n_rows_ == 50
    with pytest.raises(InvalidRowsError, match="every row"):
        back.update(remove=(X[:50], Y[:50]))
    with pytest.raises(InvalidInputError, match="no groups"):
        back.update(add=(X[:1], Y[:1], [1]))


@pytest.mark.parametrize("name", ["neighbors", "spectral", "walks"])
def test_an_audit_of_votes_of_rows_fits_them_again_and_reads_everything(tmp_path, name):
    fitted(name).save(tmp_path / "model")

    def trained_on(*data):
        report = audit_model(tmp_path / "model", *data)
        return {finding.check: finding.passed for finding in report.findings}["Training rows"]

    assert trained_on() is None
    assert trained_on((X[TRAIN], Y[TRAIN])) is True
    flipped = Y[TRAIN].copy()
    flipped[0] = (flipped[0] + 1) % 10
    assert trained_on((X[TRAIN], flipped)) is False
    (block,) = (p for p in (tmp_path / "model/objects").iterdir() if p.stat().st_size > 20_000)
    block.write_bytes(block.read_bytes()[:-1] + b"x")
    assert not audit_model(tmp_path / "model").passed


def test_what_was_learned_from_all_samples_is_not_updated(tmp_path):
    fitted("spectral").save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="Train it again"):
        update_model(tmp_path / "model", remove=(X[:1], Y[:1]))
