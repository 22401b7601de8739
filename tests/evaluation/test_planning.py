"""Plans come from trusted rows, and foretell what training then gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.evaluation import (
    LearningCurves,
    make_plan,
    measure_curves,
    planning,
    summarize,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form import RidgeClassifier

DIGITS = np.arange(10)
ORDER = np.random.default_rng(0).permutation(1797)
X, Y = (array[ORDER] for array in load_digits(return_X_y=True))


@pytest.fixture(scope="module")
def curves() -> LearningCurves:
    return measure_curves(X[:900], Y[:900], {"mean": RidgeClassifier()}, DIGITS)


def test_a_plan_foretells_accuracy_and_radius(curves: LearningCurves) -> None:
    X_train, y_train, X_test, y_test = X[900:1500], Y[900:1500], X[1500:], Y[1500:]
    rows = make_plan(curves, len(X_train)).rows
    assert {type(row.classifier) for row in rows} == {DPAClassifier, NeighborVoteClassifier}
    for row in rows:
        clf = clone(row.classifier).fit(X_train, y_train)
        summary = summarize(clf.certify(X_test), y_test)
        assert abs(summary.clean_accuracy - row.accuracy) < 0.12
        slack = 1 + 0.1 * (row.n_partitions or max(50, row.median_radius))
        assert abs((summary.median_radius or 0) - row.median_radius) <= slack


def test_more_expected_rows_allow_more_members_and_larger_radii(curves: LearningCurves) -> None:
    few, many = (make_plan(curves, rows).rows for rows in (600, 60_000))
    assert max(row.n_partitions or 0 for row in many) > 50 * max(
        row.n_partitions or 0 for row in few
    )
    assert max(row.median_radius for row in many) > 50 * max(row.median_radius for row in few)


def test_a_wanted_radius_is_reached_with_the_best_accuracy(curves: LearningCurves) -> None:
    plan = make_plan(curves, 5000, wanted_radius=20)
    assert plan.proposed.median_radius >= 20
    able = [row for row in plan.rows if row.median_radius >= 20]
    assert plan.proposed.accuracy == max(row.accuracy for row in able)
    with pytest.raises(InvalidInputError, match="No method"):
        make_plan(curves, 5000, wanted_radius=40_000)


def test_the_frontier_holds_what_nothing_beats(curves: LearningCurves) -> None:
    plan = make_plan(curves, 5000)
    assert plan.proposed in plan.frontier
    for row in plan.rows:
        assert any(
            other.accuracy >= row.accuracy and other.median_radius >= row.median_radius
            for other in plan.frontier
        )


def test_what_is_proposed_stands_in_the_table_before_others_that_are_as_good() -> None:
    same = {name: RidgeClassifier() for name in ("second name", "first name")}
    measured = measure_curves(X[:600], Y[:600], same, DIGITS)
    members = [point for point in measured.points if point.rows_per_member]
    plan = make_plan(replace(measured, points=tuple(members)), 2000)
    assert any(row is plan.proposed for row in plan.frontier)


def test_against_flipped_labels_clusters_and_walks_are_measured_too() -> None:
    curves = measure_curves(
        X[:900], Y[:900], {"ridge": RidgeClassifier()}, DIGITS, threat="label_flip"
    )
    rows = make_plan(curves, 9000).rows
    found = {type(row.classifier) for row in rows}
    assert {SSDPAClassifier, ClusterVoteClassifier, WeightedVoteClassifier} <= found
    assert all("label_flip" in row.classifier.threats for row in rows)
    (walks,) = (row for row in rows if isinstance(row.classifier, WeightedVoteClassifier))
    (clusters,) = (row for row in rows if row.point.model == "20 k-means clusters, local")
    assert walks.factor == 1  # a walk does not reach more rows because there are more
    assert clusters.factor == 9000 / clusters.point.n_rows


def test_work_on_many_trusted_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_ROWS", 300)
    monkeypatch.setattr(planning, "MOST_VOTING", 200)
    curves = measure_curves(X, Y, {"ridge": RidgeClassifier()}, DIGITS)
    assert curves.n_rows == 300
    assert {point.n_rows for point in curves.points if point.n_members is None} == {200}


def test_a_proposal_keeps_half_of_what_can_be_learned() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    y = (x + rng.normal(scale=0.35, size=4000) > 1.6).astype(int)  # about 6 % are ones
    curves = measure_curves(x[:, None], y, {"tree": DecisionTreeClassifier()}, [0, 1])
    plan = make_plan(curves, 4000)
    best = max(row.accuracy for row in plan.rows)
    majority = plan.proposed.summary.majority_share
    assert best - majority < 0.05
    assert plan.proposed.accuracy >= (best + majority) / 2


def test_too_few_trusted_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="too few to measure"):
        measure_curves(X[:50], Y[:50], {"mean": RidgeClassifier()}, DIGITS)


def test_labels_that_nothing_can_learn_are_not_planned_with() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 0.24).astype(int)
    curves = measure_curves(rng.normal(size=(900, 4)), y, {"mean": RidgeClassifier()}, [0, 1])
    assert 0.7 < curves.points[0].expected(5000).summary.majority_share < 0.82
    with pytest.raises(InvalidInputError, match="always predicting the commonest class"):
        make_plan(curves, 5000)


@pytest.fixture(scope="module")
def of_users() -> LearningCurves:
    groups = np.array([f"user {i % 60}" for i in range(900)])
    return measure_curves(X[:900], Y[:900], {"mean": RidgeClassifier()}, DIGITS, groups=groups)


def test_no_plan_has_more_partitions_than_contributors_seen(of_users: LearningCurves) -> None:
    assert of_users.n_units == 60
    plan = make_plan(of_users, 90_000)  # more rows need not be more contributors
    assert max(row.n_partitions or 0 for row in plan.rows) == 60
    assert max(row.median_radius for row in plan.rows) <= 30
    more = make_plan(of_users, 9000, expected_contributors=600)
    assert 60 < max(row.n_partitions or 0 for row in more.rows) <= 600
    with pytest.raises(InvalidInputError, match="With 60 contributors no radius exceeds 30"):
        make_plan(of_users, 90_000, wanted_radius=31)


def test_a_plan_foretells_the_radius_in_contributors(of_users: LearningCurves) -> None:
    """By a hash some partitions get no contributor: their members abstain."""
    groups = np.array([f"other user {i % 60}" for i in range(600)])
    for row in make_plan(of_users, 600).rows:
        clf = clone(row.classifier).fit(X[900:1500], Y[900:1500], groups=groups)
        summary = summarize(clf.certify(X[1500:]), Y[1500:])
        assert abs(summary.clean_accuracy - row.accuracy) < 0.15
        assert abs((summary.median_radius or 0) - row.median_radius) <= 4
