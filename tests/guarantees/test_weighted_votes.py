"""Weighted votes: refits on the cheapest flips, repeated samples, order, and what is asked with."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from poisonproof import WeightedVoteClassifier
from poisonproof.members.weights import WalkWeights

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1500), slice(1500, None)


def classifier(weights: Any = None, **parameters: Any) -> WeightedVoteClassifier:
    weights = WalkWeights(12, 0.95) if weights is None else weights
    return WeightedVoteClassifier(weights=weights, classes=range(10), **parameters)


def test_refits_on_the_cheapest_flips_change_nothing_within_the_radius() -> None:
    refits_on_the_cheapest_flips()


def refits_on_the_cheapest_flips(weights: Any = None) -> None:
    clf = classifier(weights).fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    assert (certificates.labels == Y[TEST]).mean() > 0.8
    rng = np.random.default_rng(0)
    for row in rng.choice(np.flatnonzero(certificates.radius > 5), 6, replace=False):
        asked = X[TEST][row : row + 1]
        label, rival = int(certificates.labels[row]), int(certificates.runner_up[row])
        flips = cheapest_flips(clf, asked, label, rival)
        radius = int(certificates.radius[row])
        for budget, same in ((radius, True), (radius + 1, False)):
            poisoned = Y[TRAIN].copy()
            for position, other in flips[:budget]:
                poisoned[position] = other
            attacked = classifier(weights).fit(X[TRAIN], poisoned)
            assert bool(attacked.predict(asked)[0] == label) is same


def cheapest_flips(clf: Any, asked: Any, label: int, rival: int) -> list[tuple[int, int]]:
    """Flips that lower the lead over the rival most, largest first, as (training row, label)."""
    ((weights,),) = clf._weights(asked)
    own = (clf.labels_ == label).astype(int) - (clf.labels_ == rival)
    lower = weights * own + np.abs(weights)
    where = training_rows(clf)
    return [
        (where[place], rival if weights[place] > 0 else label)
        for place in np.argsort(-lower, kind="stable")
    ]


def training_rows(clf: Any) -> list[int]:
    """Positions in the training set of the rows as the classifier orders them."""
    numbered = WeightedVoteClassifier(weights=clf.weights, classes=range(1500))
    return [int(place) for place in numbered.fit(X[TRAIN], np.arange(1500)).labels_]


def test_labels_order_and_company_move_no_weight() -> None:
    labels_order_and_company()


def labels_order_and_company(weights: Any = None) -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(1500)
    plain = classifier(weights, features=PCA(30)).fit(X[TRAIN], Y[TRAIN])
    turned = classifier(weights, features=PCA(30)).fit(X[order], rng.integers(0, 10, 1500))
    ((one,), (other,)) = (list(clf._weights(X[1500:1501])) for clf in (plain, turned))
    assert np.array_equal(one, other)
    whole, alone = plain.certify(X[TEST]), plain.certify(X[1600:1601])
    assert whole.labels[100] == alone.labels[0]
    assert whole.radius[100] == alone.radius[0]


def test_repeated_samples_with_other_labels_count_alike_in_any_order() -> None:
    many = np.r_[0:400, np.repeat(np.arange(20), 30)]
    labels = Y[many].copy()
    labels[400:] = np.random.default_rng(2).integers(0, 10, 600)
    clf = classifier().fit(X[many], labels)
    ((weights,),) = clf._weights(X[1500:1501])
    assert all(np.ptp(weights[clf.first_ == sample]) == 0 for sample in range(400))
    turned = np.random.default_rng(3).permutation(1000)
    again = classifier().fit(X[many][turned], labels[turned])
    first, second = clf.certify(X[TEST]), again.certify(X[TEST])
    assert np.array_equal(first.labels, second.labels)
    assert np.array_equal(first.radius, second.radius)


def test_so_many_repeats_that_weights_are_halved_stay_exact() -> None:
    many = np.r_[0:50, np.repeat(np.arange(5), 400)]
    clf = classifier().fit(X[many], Y[many])
    for weights in clf._weights(X[TEST]):
        assert (np.abs(weights).sum(axis=1) < 2**30).all()
        assert (np.abs(weights).sum(axis=1) > 2**26).all()
    assert (clf.certify(X[:50]).labels == clf.predict(X[:50])).all()


def test_a_target_costs_at_least_what_any_label_does() -> None:
    clf = classifier().fit(X[TRAIN], Y[TRAIN])
    plain = clf.certify(X[TEST])
    for target in range(10):
        found = clf.certify(X[TEST], target=target).radius
        already = plain.labels == target
        assert (found[already] == -1).all()
        assert (found[~already] >= plain.radius[~already]).all()
        rivals = ~already & (plain.runner_up == target)
        assert np.array_equal(found[rivals], plain.radius[rivals])
