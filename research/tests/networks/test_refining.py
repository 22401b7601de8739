"""Refined clusters: found without labels, the same bits however they were run."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
from patterns import CLUSTERS
from scipy.optimize import linear_sum_assignment

from poisonproof import ClusterVoteClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.networks.pretraining.loop import RunLimits
from poisonproof_research.networks.refine_spec import RefineSpec
from poisonproof_research.networks.refine_stages import SelfLabels
from poisonproof_research.networks.refining import (
    ClusterNetwork,
    LearnedClusters,
    load_clusters,
    refine_clusters,
)

BRIEF = replace(CLUSTERS, agreement_epochs=2, label_epochs=2, head_epochs=2, smallest_share=0.0)


def share_named(clusters: np.ndarray, kinds: np.ndarray) -> float:
    """Return the share of images whose cluster is their kind, by the best one-to-one naming."""
    table = np.zeros((4, 4), dtype=int)
    np.add.at(table, (clusters, kinds), 1)
    return table[linear_sum_assignment(-table)].sum() / len(kinds)


@pytest.fixture(scope="module")
def refined(patterns, features, tmp_path_factory) -> tuple[ClusterNetwork, object]:
    folder = tmp_path_factory.mktemp("refined")
    found = refine_clusters(patterns, features, CLUSTERS, folder=folder)
    assert found is not None
    found.save(folder)
    return found, folder


def test_clusters_of_easy_images_are_their_kinds(refined, patterns, kinds):
    found, folder = refined
    assert found.report["stage"] == "labels"
    assert found.report["alive"]
    assert share_named(found.predict(patterns), kinds) > 0.95
    for stage in ("start", "agreement", "labels"):
        assert share_named(load_clusters(folder / stage).predict(patterns), kinds) > 0.95


def test_a_stopped_run_goes_on_to_the_same_bits_in_any_order_of_images(
    patterns, features, tmp_path
):
    whole = refine_clusters(patterns, features, BRIEF)
    for done in (1, 2, 3):
        limits = RunLimits(stop_after=done)
        stopped = refine_clusters(patterns[::-1], features, BRIEF, folder=tmp_path, limits=limits)
        assert stopped is None
    assert refine_clusters(patterns, features, BRIEF, folder=tmp_path).digest() == whole.digest()
    assert len(whole.history) == 4
    again = refine_clusters(patterns, features, BRIEF, folder=tmp_path)  # finished: nothing runs
    assert again.digest() == whole.digest()
    with pytest.raises(StoreError, match="another specification"):
        refine_clusters(patterns, features, replace(BRIEF, seed=1), folder=tmp_path)


def test_nothing_that_refines_takes_labels():
    names = set(inspect.signature(refine_clusters).parameters)
    assert names == {"X", "features", "spec", "folder", "limits", "progress", "watch"}


def test_a_stage_that_kills_a_cluster_is_discarded(patterns, features, monkeypatch):
    def all_alike(task, images, draw):
        chances = torch.log_softmax(task.logits(task.strong(images, draw, 0)), dim=1)
        return -chances[:, 0].mean(), chances.new_zeros(())

    monkeypatch.setattr(SelfLabels, "loss", all_alike)
    spec = replace(CLUSTERS, label_epochs=6, learning_rate=0.01, smallest_share=0.1)
    found = refine_clusters(patterns, features, spec)
    assert found.report["stage"] == "agreement"
    assert min(found.report["discarded"]["labels"]) < 0.1 * 64


def test_the_cluster_of_an_image_does_not_depend_on_its_company(refined, patterns):
    found, _ = refined
    together = found.probabilities(patterns)
    for row in (0, 100, 255):
        assert np.array_equal(found.probabilities(patterns[row : row + 1])[0], together[row])
    assert found.transform(patterns[:5]).shape == (5, 64)
    assert np.allclose(together.sum(axis=1), 1.0)


def test_labels_name_refined_clusters_and_cannot_move_them(refined, patterns, kinds):
    found, folder = refined
    X = patterns.reshape(len(patterns), -1)
    clf = ClusterVoteClassifier(
        clusterer=LearnedClusters(str(folder)), assignment="one_to_one", classes=range(4)
    )
    clf.fit(X[:200], kinds[:200])
    certificates = clf.certify(X[200:])
    assert (certificates.labels == kinds[200:]).mean() > 0.9
    assert np.median(certificates.radius) > 30  # near half of two kinds
    shuffled = np.random.default_rng(1).permutation(kinds[:200])
    other = ClusterVoteClassifier(clusterer=LearnedClusters(str(folder)), classes=range(4))
    assert np.array_equal(other.fit(X[:200], shuffled).clusters_, clf.clusters_)
    assert np.array_equal(clf.clusters_, found.predict(patterns[:200]))


def test_wrong_input_is_named(patterns, features, rotnet):
    with pytest.raises(InvalidRowsError, match="too few for 4 clusters and 8 neighbours"):
        refine_clusters(patterns[:8], features, CLUSTERS)
    with pytest.raises(InvalidInputError, match="simclr"):
        refine_clusters(patterns[:, :1], rotnet, CLUSTERS)
    with pytest.raises(InvalidInputError, match="n_clusters must be at least 2"):
        RefineSpec(1)
    with pytest.raises(InvalidInputError, match="confidence"):
        RefineSpec(4, confidence=1.0)
