"""Plans come from trusted rows, and foretell what training then gives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof import DPAClassifier
from poisonproof.evaluation import (
    LearningCurves,
    make_plan,
    measure_curves,
    summarize,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form import RidgeClassifier

DIGITS = np.arange(10)


@pytest.fixture(scope="module")
def curves() -> LearningCurves:
    X, y = load_digits(return_X_y=True)
    return measure_curves(X[:900], y[:900], {"mean": RidgeClassifier()}, DIGITS)


def test_a_plan_foretells_accuracy_and_radius(curves: LearningCurves) -> None:
    X, y = load_digits(return_X_y=True)
    X_train, y_train, X_test, y_test = X[900:1500], y[900:1500], X[1500:], y[1500:]
    for row in make_plan(curves, len(X_train)).rows:
        clf = DPAClassifier(RidgeClassifier(), row.n_partitions, classes=DIGITS)
        summary = summarize(clf.fit(X_train, y_train).certify(X_test), y_test)
        assert abs(summary.clean_accuracy - row.accuracy) < 0.12
        slack = 1 + 0.1 * row.n_partitions
        assert abs((summary.median_radius or 0) - row.median_radius) <= slack


def test_more_expected_rows_allow_more_members_and_larger_radii(curves: LearningCurves) -> None:
    few, many = (make_plan(curves, rows).proposed for rows in (600, 60_000))
    assert many.n_partitions > 50 * few.n_partitions
    assert many.median_radius > 50 * few.median_radius


def test_a_wanted_radius_is_reached_with_the_best_accuracy(curves: LearningCurves) -> None:
    plan = make_plan(curves, 5000, wanted_radius=20)
    assert plan.proposed.median_radius >= 20
    able = [row for row in plan.rows if row.median_radius >= 20]
    assert plan.proposed.accuracy == max(row.accuracy for row in able)
    with pytest.raises(InvalidInputError, match="No number of members"):
        make_plan(curves, 5000, wanted_radius=4000)


def test_too_few_trusted_rows_are_refused() -> None:
    X, y = load_digits(return_X_y=True)
    with pytest.raises(InvalidInputError, match="too few to measure"):
        measure_curves(X[:50], y[:50], {"mean": RidgeClassifier()}, DIGITS)


def test_labels_that_nothing_can_learn_are_not_planned_with() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 0.24).astype(int)
    curves = measure_curves(rng.normal(size=(900, 4)), y, {"mean": RidgeClassifier()}, [0, 1])
    assert 0.7 < curves.majority_share < 0.82
    with pytest.raises(InvalidInputError, match="always predicting the commonest class"):
        make_plan(curves, 5000)


def test_no_plan_has_more_partitions_than_contributors() -> None:
    X, y = load_digits(return_X_y=True)
    groups = np.array([f"user {i % 60}" for i in range(900)])
    curves = measure_curves(X[:900], y[:900], {"mean": RidgeClassifier()}, DIGITS, groups=groups)
    assert curves.n_units < 60
    plan = make_plan(curves, 9000)
    assert max(row.n_partitions for row in plan.rows) <= 9000 * curves.n_units // curves.n_rows
