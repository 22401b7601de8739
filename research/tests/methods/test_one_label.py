"""Appendix B: one label per member, and certificates of nearly half of all labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from poisonproof import SSDPAClassifier
from poisonproof.exceptions import InvalidInputError
from poisonproof.features import learns_nothing
from poisonproof_research.methods.one_label import ClusterIndex, OneLabelClassifier

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(0, 1, (30, 3)), RNG.normal(8, 1, (20, 3))])
Y = np.repeat([0, 1], [30, 20])


def fitted(y, elsewhere="opposite", k=50):
    learner = OneLabelClassifier(2, elsewhere)
    return SSDPAClassifier(learner, ClusterIndex(2), n_partitions=k, classes=[0, 1]).fit(X, y)


def test_every_member_votes_and_the_radius_is_half_of_all_labels():
    certificates = fitted(Y).certify(X)
    assert (certificates.labels == Y).all()
    # 50 votes for the right class: class 0 wins ties and stands 25 flips, class 1 stands 24.
    assert certificates.radius.tolist() == [25] * 30 + [24] * 20


def test_abstaining_members_certify_half_of_their_own_cluster():
    certificates = fitted(Y, "abstain").certify(X)
    assert certificates.radius.tolist() == [15] * 30 + [9] * 20


def test_real_flips_up_to_the_radius_change_nothing_and_one_more_does():
    for count, changed in ((24, False), (25, True)):
        flipped = Y.copy()
        flipped[:count] = 1 - flipped[:count]
        labels = fitted(flipped).predict(X[30:])
        assert bool((labels != 1).all()) is changed
        assert bool((labels == 1).all()) is not changed


def test_clusters_do_not_see_labels():
    flipped = RNG.permutation(Y)
    assert np.array_equal(fitted(Y).features_.centres_, fitted(flipped).features_.centres_)


def test_members_with_several_rows_follow_most_of_them():
    votes = fitted(Y, k=5).votes(X)
    assert (votes == Y[:, None]).all()


def test_wrong_uses_are_refused():
    with pytest.raises(InvalidInputError, match="needs two classes, got 3"):
        SSDPAClassifier(OneLabelClassifier(), ClusterIndex(), 50, classes=[0, 1, 2]).fit(X, Y)
    with pytest.raises(InvalidInputError, match="features=ClusterIndex"):
        SSDPAClassifier(OneLabelClassifier(), n_partitions=50, classes=[0, 1]).fit(X, Y)
    assert not learns_nothing(ClusterIndex())


@pytest.mark.mnist
def test_ones_and_sevens_stand_5952_flips_at_95_5_percent():
    if "POISONPROOF_DATA" not in os.environ:
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        (x, y), (x_test, y_test) = ((file[f"x_{s}"], file[f"y_{s}"]) for s in ("train", "test"))
    train, test = np.isin(y, [1, 7]), np.isin(y_test, [1, 7])
    classifier = SSDPAClassifier(
        OneLabelClassifier(), ClusterIndex(), int(train.sum()), classes=[1, 7]
    )
    classifier.fit(x[train].reshape(-1, 784), y[train])
    certificates = classifier.certify(x_test[test].reshape(-1, 784))
    right = certificates.labels == y_test[test]
    assert right.mean() >= 0.955
    assert certificates.radius[right].min() >= 5952
