"""Members that share buckets: one row reaches d of them, bit for bit, and attacks fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.networks import TorchLearner
from poisonproof_research.methods.finite_aggregation import FiniteAggregationClassifier

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, None)
MEMBERS = {
    "tree": DecisionTreeClassifier(),
    "ridge": RidgeClassifier(),
    "network": TorchLearner("mlp", hidden=(16,), epochs=2),
}


def classifier(member: Any, k: int = 8, degree: int = 3, **settings: Any) -> Any:
    settings = {"classes": range(10), **settings}
    return FiniteAggregationClassifier(member, k, degree, **settings)


@pytest.mark.parametrize("member", list(MEMBERS))
def test_one_row_reaches_exactly_the_members_of_its_bucket(member: str) -> None:
    clf = classifier(MEMBERS[member]).fit(X[TRAIN], Y[TRAIN])
    assert clf.member_sizes_.sum() == 3 * 1200
    new = X[TEST][:1] + 0.5
    grown = classifier(MEMBERS[member]).fit(
        np.concatenate([new, X[TRAIN]]), np.concatenate([[3], Y[TRAIN]])
    )
    before, after = clf.ensemble_.digests(), grown.ensemble_.digests()
    changed = [
        index for index, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) > 1
    ]
    bucket = int(clf.partitioner_.assign(new)[0])
    assert set(changed) <= set(clf.spread_.members_of_bucket[bucket].tolist())
    assert changed


def test_members_do_not_depend_on_row_order_or_workers() -> None:
    order = np.random.default_rng(0).permutation(1200)
    first = classifier(DecisionTreeClassifier()).fit(X[TRAIN], Y[TRAIN])
    second = classifier(DecisionTreeClassifier(), n_jobs=2).fit(X[TRAIN][order], Y[TRAIN][order])
    assert first.ensemble_.digests() == second.ensemble_.digests()


def test_degree_one_is_dpa() -> None:
    clf = classifier(GaussianNB(), 20, 1).fit(X[TRAIN], Y[TRAIN])
    plain = DPAClassifier(GaussianNB(), 20, classes=range(10)).fit(X[TRAIN], Y[TRAIN])
    assert np.array_equal(clf.votes(X[TEST]), plain.votes(X[TEST])[:, _shift(clf)])
    assert np.array_equal(clf.certify(X[TEST]).radius, plain.certify(X[TEST]).radius)


def _shift(clf: Any) -> Any:
    """With one offset r, member j trains on bucket j - r."""
    return clf.spread_.buckets_of_member[:, 0]


def test_refits_within_the_radius_change_no_certified_prediction() -> None:
    clf = classifier(DecisionTreeClassifier(max_depth=6)).fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    rng = np.random.default_rng(1)
    assert certificates.radius.max() >= 1
    for size in (1, int(certificates.radius.max())):
        safe = certificates.radius >= size
        for _ in range(4):
            poison = rng.integers(0, 17, (size, 64)).astype(float)
            keep = np.sort(rng.permutation(1200)[size // 2 :])
            inserted = poison[: size - size // 2]
            poisoned = classifier(DecisionTreeClassifier(max_depth=6)).fit(
                np.concatenate([X[TRAIN][keep], inserted]),
                np.concatenate([Y[TRAIN][keep], rng.integers(0, 10, len(inserted))]),
            )
            assert np.array_equal(poisoned.predict(X[TEST])[safe], certificates.labels[safe])
