"""Run-offs of real members, copies averaged or buckets shared: attacks with real refits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, certify_scores, load
from poisonproof.estimators import certify_runoff, member_scores
from poisonproof.exceptions import GuaranteeError, InvalidInputError, MemberWarning
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.networks import TorchLearner

from .data import near_copies

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, 1500)

_RANDOM_TREE = DecisionTreeClassifier(max_depth=5, splitter="random")
MODELS = {
    "closed form": DPAClassifier(RidgeClassifier(), 12, classes=range(10)),
    "averaged copies": DPAClassifier(
        VotingClassifier([(f"seed{j}", _RANDOM_TREE) for j in range(3)], voting="soft"),
        9,
        classes=range(10),
    ),
    "naive Bayes": DPAClassifier(GaussianNB(), 9, classes=range(10)),
    "network": DPAClassifier(TorchLearner("mlp", hidden=(16,), epochs=8), 9, classes=range(10)),
}


def fit(name: str, X: Any, y: Any) -> Any:
    return clone(MODELS[name]).fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_refits_within_the_radius_change_no_winner(name: str) -> None:
    clf = fit(name, X[TRAIN], Y[TRAIN])
    certificates = certify_runoff(clf, X[TEST])
    assert certificates.radius.max() >= 2
    rng = np.random.default_rng(0)
    for size in (1, 2):
        safe = certificates.radius >= size
        assert safe.any()
        for _ in range(2):
            inserted = X[TEST][rng.choice(np.flatnonzero(safe), size)] + rng.integers(0, 2, 64)
            deleted = rng.permutation(1200)[: size // 2]
            rows = np.concatenate([np.delete(X[TRAIN], deleted, axis=0), inserted[len(deleted) :]])
            wrong = rng.integers(0, 10, len(inserted) - len(deleted))
            poisoned = fit(name, rows, np.concatenate([np.delete(Y[TRAIN], deleted), wrong]))
            after = certify_runoff(poisoned, X[TEST]).labels
            assert np.array_equal(after[safe], certificates.labels[safe])


def test_aimed_refits_stand_at_the_radius_and_fall_beyond_it() -> None:
    """Neighbours believe whoever stands closest: copies of the test row, one per partition."""
    clf = DPAClassifier(KNeighborsClassifier(1), 8, classes=range(10))
    clf.fit(X[TRAIN], Y[TRAIN])
    fell = 0
    chosen = np.flatnonzero(certify_runoff(clf, X[TEST]).radius >= 1)[:6]
    for row in chosen:
        asked = X[TEST][row : row + 1]
        before = certify_runoff(clf, asked)
        label, radius = before.labels[0], int(before.radius[0])
        for rival in (int(before.runner_up[0]), (int(label) + 1) % 10):
            for size in (radius, 8):
                poison = near_copies(clf, asked, size)
                poisoned = clone(clf).fit(
                    np.concatenate([X[TRAIN], poison]),
                    np.concatenate([Y[TRAIN], np.full(len(poison), rival)]),
                )
                after = certify_runoff(poisoned, asked).labels[0]
                if size == radius:
                    assert after == label
                else:
                    fell += after != label
    assert fell > 0


def test_scores_are_those_that_the_run_off_counts() -> None:
    clf = fit("closed form", X[TRAIN], Y[TRAIN])
    scores = member_scores(clf, X[TEST])
    assert scores.shape == (300, 12, 10)
    found = certify_runoff(clf, X[TEST], target=3)
    plain = certify_scores(scores, target=3)
    assert np.array_equal(found.radius, plain.radius)
    first = scores.argmax(axis=2)
    assert (first == clf.votes(X[TEST])).mean() > 0.999  # scores are rounded, votes are exact


def test_empty_partitions_abstain_and_missing_classes_come_last() -> None:
    few = [0, 1, 2, 3, 10, 11]
    for member in (RidgeClassifier(), GaussianNB()):
        clf = DPAClassifier(member, 20, classes=range(10))
        with pytest.warns(MemberWarning, match="no rows and abstain"):
            clf.fit(X[few], Y[few])
        scores = member_scores(clf, X[TEST])
        empty = np.isnan(scores).all(axis=2)
        assert np.array_equal(empty, clf.votes(X[TEST]) == -1)
        certify_runoff(clf, X[TEST])


def test_a_loaded_model_gives_the_same_certificates(tmp_path: Any) -> None:
    clf = fit("naive Bayes", X[TRAIN], Y[TRAIN])
    clf.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    one, two = (certify_runoff(model, X[TEST]) for model in (clf, loaded))
    assert np.array_equal(one.radius, two.radius)
    assert np.array_equal(one.labels, two.labels)


def test_members_without_scores_and_undeclared_classes_are_refused() -> None:
    clf = DPAClassifier(SGDClassifier(), 5, classes=range(10)).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(InvalidInputError, match="no predict_proba"):
        certify_runoff(clf, X[TEST])
    clf = DPAClassifier(GaussianNB(), 5).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(GuaranteeError, match="Declare it"):
        certify_runoff(clf, X[TEST], require_declared=True)


def test_members_that_are_certified_by_another_rule_are_refused() -> None:
    """A row may reach several of them: the certificate of the run-off would count too few."""

    class Overlapping(DPAClassifier):
        def _certified(self, X: Any, threat: Any, target: Any) -> Any:
            raise NotImplementedError

    clf = Overlapping(GaussianNB(), 5, classes=range(10)).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(GuaranteeError, match="one member"):
        certify_runoff(clf, X[TEST])
