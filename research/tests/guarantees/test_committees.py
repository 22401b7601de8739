"""Ensembles that vote as one: attacks with real refits, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier, certify_scores
from poisonproof.estimators import certify_runoff, member_scores
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.features import OrientationHistogram
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.members.committee import standardized
from poisonproof.networks import TorchLearner
from poisonproof_research.methods.committees import COMMON_ROWS, certify_committee

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, 1500)
NETWORK = TorchLearner("mlp", hidden=(16,), epochs=8)


def dpa(estimator: Any = None, k: int = 9, **options: Any) -> DPAClassifier:
    return DPAClassifier(estimator, k, classes=range(10), **options)


COMMITTEES: dict[str, list[Any]] = {
    "network and ridge": [dpa(NETWORK), dpa(RidgeClassifier())],
    "trees, Bayes and neighbours": [
        dpa(DecisionTreeClassifier(max_depth=5)),
        dpa(GaussianNB()),
        dpa(KNeighborsClassifier(1)),
    ],
    "a map of its own": [
        dpa(RidgeClassifier(), features=OrientationHistogram(image_shape=(8, 8))),
        dpa(GaussianNB()),
    ],
    "copies of a network": [dpa(NETWORK, random_state=seed) for seed in range(3)],
}


def fit(models: list[Any], X: Any, y: Any) -> list[Any]:
    return [clone(model).fit(X, y) for model in models]


@pytest.mark.parametrize("method", ["runoff", "plurality"])
@pytest.mark.parametrize("name", COMMITTEES)
def test_refits_within_the_radius_change_no_winner(name: str, method: str) -> None:
    models = COMMITTEES[name]
    certificates = certify_committee(fit(models, X[TRAIN], Y[TRAIN]), X[TEST], method)
    rng = np.random.default_rng(0)
    for size in (1, 2):
        safe = certificates.radius >= size
        assert safe.any()
        inserted = X[TEST][rng.choice(np.flatnonzero(safe), size)] + rng.integers(0, 2, 64)
        deleted = rng.permutation(1200)[: size // 2]
        rows = np.concatenate([np.delete(X[TRAIN], deleted, axis=0), inserted[len(deleted) :]])
        wrong = rng.integers(0, 10, len(inserted) - len(deleted))
        poisoned = fit(models, rows, np.concatenate([np.delete(Y[TRAIN], deleted), wrong]))
        after = certify_committee(poisoned, X[TEST], method).labels
        assert np.array_equal(after[safe], certificates.labels[safe])


def test_scores_are_added_with_equal_weight_and_targets_are_certified() -> None:
    fitted = fit([dpa(GaussianNB()), dpa(NETWORK)], X[TRAIN], Y[TRAIN])
    scores = sum(standardized(np.float64(member_scores(clf, X[TEST]))) for clf in fitted)
    for method in ("runoff", "plurality"):
        found = certify_committee(fitted, X[TEST], method, target=3)
        expected = certify_scores(scores, method, target=3)
        assert np.array_equal(found.labels, expected.labels)
        assert np.array_equal(found.radius, expected.radius)


SPARSE = {
    "ridge": RidgeClassifier(),
    "default": None,
    "neighbours": KNeighborsClassifier(1),
    "Bayes": GaussianNB(),
    "network": NETWORK,
}


@pytest.mark.parametrize("name", SPARSE)
def test_partitions_of_a_few_rows_vote_as_they_do_alone(name: str) -> None:
    """Empty partitions, single classes, and classes without a row."""
    (clf,) = fit([dpa(SPARSE[name], 40)], X[:80], Y[:80])
    assert (clf.partition_sizes_ == 0).any()
    assert (clf.partition_sizes_ == 1).any()
    with np.errstate(over="raise", invalid="raise"):
        joint = certify_committee([clf], X[TEST])
    alone = certify_runoff(clf, X[TEST])
    assert np.array_equal(alone.counts, joint.counts)
    assert np.array_equal(alone.labels, joint.labels)
    assert np.array_equal(alone.radius, joint.radius)


def test_who_abstains_is_silent() -> None:
    fitted = fit([dpa(RidgeClassifier(), 30), dpa(GaussianNB(), 30)], X[:60], Y[:60])
    empty = int((fitted[0].partition_sizes_ == 0).sum())
    assert empty > 0
    counts = certify_committee(fitted, X[TEST]).counts
    assert (counts.sum(axis=1) == 30 - empty).all()


def test_contributors_are_counted_and_common_rows_are_assumed() -> None:
    groups = [f"contributor {row // 4}" for row in range(1200)]
    fitted = [
        dpa(estimator, partitioner="group").fit(X[TRAIN], Y[TRAIN], groups=groups)
        for estimator in (RidgeClassifier(), GaussianNB())
    ]
    certificates = certify_committee(iter(fitted), X[TEST])
    assert certificates.threat.unit == "group"
    assert COMMON_ROWS in certificates.threat.assumptions
    assert certificates.radius.max() >= 3


def by_names_and_by_numbers() -> list[Any]:
    """Return ensembles in which the same contributors reach different votes."""
    numbers = np.arange(len(X)) // 4
    names = [f"contributor {number}" for number in numbers]
    return [
        dpa(GaussianNB(), partitioner="group").fit(X, Y, groups=groups)
        for groups in (numbers, names)
    ]


DIFFERENT: dict[str, Callable[[], list[Any]]] = {
    "partitioners": lambda: fit([dpa(GaussianNB(), 9), dpa(GaussianNB(), 10)], X, Y),
    "rows in their partitions": lambda: [
        dpa(GaussianNB()).fit(X[:1200], Y[:1200]),
        dpa(GaussianNB()).fit(X[:1201], Y[:1201]),
    ],
    "rows": by_names_and_by_numbers,
    "label sets": lambda: [
        dpa(GaussianNB()).fit(X, Y),
        DPAClassifier(GaussianNB(), 9, classes=range(11)).fit(X, Y),
    ],
    "kinds": lambda: fit(
        [dpa(GaussianNB(), 10), SSDPAClassifier(GaussianNB(), n_partitions=10, classes=range(10))],
        X,
        Y,
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_ensembles_that_a_row_reaches_in_different_places_are_refused(what: str) -> None:
    with pytest.raises(GuaranteeError, match=f"have different {what}"):
        certify_committee(DIFFERENT[what](), X[:5])


def test_labels_flipped_on_shared_samples() -> None:
    models = [
        SSDPAClassifier(estimator=estimator, n_partitions=12, classes=range(10))
        for estimator in (make_pipeline(PCA(8), GaussianNB()), RidgeClassifier())
    ]
    certificates = certify_committee(fit(models, X[TRAIN], Y[TRAIN]), X[TEST])
    assert certificates.threat.name == "label_flip"
    safe = certificates.radius >= 2
    assert safe.any()
    flipped = Y[TRAIN].copy()
    flipped[[5, 700]] = (flipped[[5, 700]] + 1) % 10
    after = certify_committee(fit(models, X[TRAIN], flipped), X[TEST]).labels
    assert np.array_equal(after[safe], certificates.labels[safe])


def test_what_is_no_ensemble_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs fitted ensembles"):
        certify_committee([], X)
    with pytest.raises(InvalidInputError, match="GaussianNB"):
        certify_committee([GaussianNB()], X)  # type: ignore[list-item]
