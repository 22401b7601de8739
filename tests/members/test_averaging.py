"""Copies of one classifier, averaged: the same bits for the same seed, and one vote per member."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import ExtraTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import DPAClassifier
from poisonproof.evaluation import clean_accuracy
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.committee import SeedAverage

X, Y = load_digits(return_X_y=True)


@parametrize_with_checks([SeedAverage(n_copies=2)])
def test_the_average_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def test_copies_draw_from_streams_of_their_own() -> None:
    average = SeedAverage(ExtraTreeClassifier(), n_copies=3).fit(X, Y)
    first, second, third = (copy.tree_.threshold.tobytes() for copy in average.classifiers_)
    assert len({first, second, third}) == 3
    again = SeedAverage(ExtraTreeClassifier(), n_copies=3).fit(X, Y)
    assert np.array_equal(average.predict_proba(X), again.predict_proba(X))


def test_averaged_members_are_better_and_count_once() -> None:
    def certificates(member: Any) -> Any:
        clf = DPAClassifier(member, 10, classes=range(10)).fit(X[:1200], Y[:1200])
        return clf.certify(X[1200:])

    one, many = certificates(ExtraTreeClassifier()), certificates(SeedAverage(n_copies=8))
    assert many.n_members == one.n_members == 10
    assert clean_accuracy(many, Y[1200:]) > clean_accuracy(one, Y[1200:]) + 0.05


def test_a_poisoned_row_reaches_one_averaged_member() -> None:
    member = SeedAverage(n_copies=3)
    before = DPAClassifier(member, 10, classes=range(10)).fit(X[:600], Y[:600])
    after = DPAClassifier(member, 10, classes=range(10)).fit(X[:601], Y[:601])
    pairs = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    assert sum(first != second for first, second in pairs) == 1


def test_classifiers_without_probabilities_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="predict_proba"):
        SeedAverage(RidgeClassifier()).fit(X, Y)
    with pytest.raises(InvalidInputError, match="n_copies"):
        SeedAverage(n_copies=0).fit(X, Y)
