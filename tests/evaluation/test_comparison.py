"""The methods that are compared on a user's rows: what is certified, against what."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof.evaluation.comparison import Candidate, Comparison, candidates

X, Y = load_iris(return_X_y=True)
NAIVE_BAYES = GaussianNB()


def chosen(member: object = NAIVE_BAYES) -> dict[str, Candidate]:
    found = list(candidates(3, member, [4], [0.99]))
    assert len({candidate.name for candidate in found}) == len(found)
    return {candidate.name: candidate for candidate in found}


@pytest.fixture(scope="module")
def data() -> Comparison:
    test = np.arange(len(X)) % 3 == 0
    return Comparison("iris", "Iris", X[~test], Y[~test], X[test], Y[test], "poisonproof compare")


def test_every_candidate_is_asked_for_a_threat_that_its_classifier_certifies() -> None:
    for candidate in chosen().values():
        assert candidate.threat in (None, *candidate.classifier.threats)


def test_what_withstands_any_row_stands_beside_what_withstands_flips(data: Comparison) -> None:
    for name in ("dpa-4", "runoff-4", "neighbors-0.99"):
        rows, flips = chosen()[name], chosen()[f"{name}-label-flip"]
        fitted = data.fit(flips.classifier)
        certify = flips.certify or type(fitted).certify
        wanted = certify(fitted, data.X_test, threat="label_flip")
        method = data.run(flips, fitted)
        assert method.threat == "label_flip"
        assert np.array_equal(method.certificates.radius, wanted.radius)
        assert data.run(rows, fitted).threat == "insert_delete"
        assert (method.title, method.family) == (rows.title, rows.family)


def test_a_flip_moves_the_gap_of_neighbour_votes_by_two(data: Comparison) -> None:
    rows, flips = chosen()["neighbors-0.99"], chosen()["neighbors-0.99-label-flip"]
    fitted = data.fit(rows.classifier)
    gaps = data.run(rows, fitted).certificates.radius
    assert np.array_equal(data.run(flips, fitted).certificates.radius, gaps // 2)


def test_samples_are_clustered_once_and_certified_by_each_rule(data: Comparison) -> None:
    for kind in ("kmeans", "spectral", "mixture"):
        onto, local = chosen()[f"{kind}-6-onto"], chosen()[f"{kind}-6-local"]
        assert onto.classifier.clusterer == local.classifier.clusterer == kind
        fitted = data.fit(onto.classifier)
        for candidate, rule in ((onto, "onto"), (local, "local")):
            alone = data.fit(candidate.classifier.set_params(assignment=rule))
            wanted = alone.certify(data.X_test)
            method = data.run(candidate, fitted)
            assert np.array_equal(method.certificates.radius, wanted.radius)
            assert np.array_equal(method.certificates.labels, wanted.labels)


def test_candidates_that_share_a_classifier_follow_each_other() -> None:
    found = list(candidates(3, DecisionTreeClassifier(), [4, 8], [0.9, 0.99]))
    runs = [id(classifier) for classifier, _ in groupby(found, lambda one: one.classifier)]
    assert len(set(runs)) == len(runs) < len(found)
