"""Weights are the attacker's to choose; groups make the contributor the unit of an attack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.certificates import UNFORGEABLE_GROUPS
from poisonproof.data import DataSource, Schema
from poisonproof.estimators import fit_stream
from poisonproof.exceptions import InvalidInputError

from .checks import Rows, assert_only_touched_change, assert_order_does_not_matter, changed_members
from .data import data

DIGITS = data("digits")
WEIGHT = np.random.default_rng(0).uniform(0.5, 2, len(DIGITS.y))
GROUPS = np.random.default_rng(1).integers(0, 200, len(DIGITS.y))
LEARNERS = [DecisionTreeClassifier(), GaussianNB(), LogisticRegression(max_iter=9)]


def ensemble(estimator: Any, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator, 20, classes=range(10), **parameters)


@pytest.mark.parametrize("estimator", LEARNERS, ids=str)
@pytest.mark.parametrize("huge", [0.0, 1e-300, 1e12])
def test_one_rows_weight_reaches_one_member(estimator: Any, huge: float) -> None:
    weight = WEIGHT.copy()
    weight[11] = huge
    before = ensemble(estimator).fit(DIGITS.X, DIGITS.y, sample_weight=WEIGHT)
    after = ensemble(estimator).fit(DIGITS.X, DIGITS.y, sample_weight=weight)
    touched = before.partitioner_.assign(DIGITS.X[11:12])
    assert_only_touched_change(before, after, DIGITS.X_test, touched)
    assert changed_members(before, after, DIGITS.X_test) == set(touched.tolist())


def test_weights_travel_with_their_rows() -> None:
    rows = Rows(DIGITS.X, DIGITS.y, sample_weight=WEIGHT)
    assert_order_does_not_matter(lambda: ensemble(GaussianNB()), rows, DIGITS.X_test, seed=4)


def test_repeated_rows_with_different_weights_have_one_order() -> None:
    X, y = np.repeat(DIGITS.X[:200], 4, axis=0), np.repeat(DIGITS.y[:200], 4)
    weight = np.random.default_rng(3).uniform(0, 1, len(y))
    rows = Rows(X, y, sample_weight=weight)
    model = lambda: ensemble(LogisticRegression(solver="saga", max_iter=3))  # noqa: E731
    assert_order_does_not_matter(model, rows, DIGITS.X_test, seed=5)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_row_with_an_impossible_weight_is_refused_or_dropped_alone(weight: float) -> None:
    poisoned = (
        np.concatenate([DIGITS.X, DIGITS.X[:1]]),
        np.append(DIGITS.y, 0),
    )
    weights = np.append(WEIGHT, weight)
    with pytest.raises(InvalidInputError, match=r"sample_weight.*row"):
        ensemble(GaussianNB()).fit(*poisoned, sample_weight=weights)
    dropped = ensemble(GaussianNB(), invalid_rows="drop").fit(*poisoned, sample_weight=weights)
    clean = ensemble(GaussianNB()).fit(DIGITS.X, DIGITS.y, sample_weight=WEIGHT)
    assert not changed_members(clean, dropped, DIGITS.X_test)


def test_the_sign_of_a_zero_weight_does_not_matter() -> None:
    first, second = np.ones(len(DIGITS.y)), np.ones(len(DIGITS.y))
    first[:9], second[:9] = 0.0, -0.0
    models = [
        ensemble(GaussianNB()).fit(DIGITS.X, DIGITS.y, sample_weight=w) for w in (first, second)
    ]
    assert models[0].partition_digests_ == models[1].partition_digests_
    assert not changed_members(*models, DIGITS.X_test)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_weights_reach_a_pipelines_last_step_through_metadata_routing(n_jobs: int) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        member = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            GaussianNB().set_fit_request(sample_weight=True),
        )
        heavy = ensemble(member, n_jobs=n_jobs).fit(
            DIGITS.X, DIGITS.y, sample_weight=np.where(DIGITS.y == 1, 1000.0, 1.0)
        )
        plain = ensemble(member, n_jobs=n_jobs).fit(DIGITS.X, DIGITS.y)
        assert not heavy.failures_
        assert len(changed_members(heavy, plain, DIGITS.X_test)) == 20


def test_a_learner_without_weights_says_so() -> None:
    with pytest.raises(InvalidInputError, match="takes no sample_weight"):
        ensemble(make_pipeline(StandardScaler(), GaussianNB())).fit(
            DIGITS.X, DIGITS.y, sample_weight=WEIGHT
        )


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31 - 1), size=st.integers(1, 4))
def test_contributors_who_rewrite_all_their_rows_reach_one_member_each(
    seed: int, size: int
) -> None:
    rng = np.random.default_rng(seed)
    clean = ensemble(DecisionTreeClassifier(), partitioner="group")
    clean.fit(DIGITS.X, DIGITS.y, groups=GROUPS)
    evil = rng.choice(200, size, replace=False)
    honest = ~np.isin(GROUPS, evil)
    n_new = int(rng.integers(0, 120))
    X = np.concatenate([DIGITS.X[honest], rng.integers(0, 99, (n_new, 64))])
    y = np.append(DIGITS.y[honest], rng.integers(0, 10, n_new))
    groups = np.append(GROUPS[honest], rng.choice(evil, n_new))
    after = ensemble(DecisionTreeClassifier(), partitioner="group").fit(X, y, groups=groups)
    touched = clean.partitioner_.assign(DIGITS.X[:size], groups=evil)
    assert_only_touched_change(clean, after, DIGITS.X_test, touched)
    certificates = clean.certify(DIGITS.X_test, threat="replace")
    certified = certificates.radius >= size
    assert (after.predict(DIGITS.X_test) == certificates.labels)[certified].all()


def test_a_group_certificate_counts_groups_and_says_what_it_assumes() -> None:
    fitted = ensemble(DecisionTreeClassifier(), partitioner="group")
    fitted.fit(DIGITS.X, DIGITS.y, groups=GROUPS)
    replaced = fitted.certify(DIGITS.X_test, threat="replace")
    inserted = fitted.certify(DIGITS.X_test, threat="insert_delete")
    assert replaced.threat.unit == "group"
    assert fitted.certify(DIGITS.X_test).threat == replaced.threat  # whatever a contributor does
    assert UNFORGEABLE_GROUPS in replaced.threat.assumptions
    assert np.array_equal(replaced.radius, inserted.radius)


def test_a_row_replaced_costs_two_partitions() -> None:
    fitted = ensemble(DecisionTreeClassifier()).fit(DIGITS.X, DIGITS.y)
    replaced = fitted.certify(DIGITS.X_test, threat="replace")
    inserted = fitted.certify(DIGITS.X_test, threat="insert_delete")
    assert np.array_equal(replaced.radius, inserted.radius // 2)


@pytest.mark.parametrize("partitioner", ["content", "pixel_sum"])
def test_groups_that_no_partitioner_reads_are_refused(partitioner: str, tmp_path: Path) -> None:
    """Ignored, they would leave certificates in rows to somebody who counts contributors."""
    X, y, groups = DIGITS.X, DIGITS.y, GROUPS
    model = ensemble(GaussianNB(), partitioner=partitioner)
    advice = "Set partitioner='group', or leave groups out"
    with pytest.raises(InvalidInputError, match=advice):
        model.fit(X, y, groups=groups)
    with pytest.raises(InvalidInputError, match=advice):
        model.fit_into(tmp_path / "model", X, y, groups=groups)
    fitted = model.fit(X[9:], y[9:])
    for rows in ({"add": (X[:9], y[:9], groups[:9])}, {"remove": (X[9:12], y[9:12], groups[9:12])}):
        with pytest.raises(InvalidInputError, match=advice):
            fitted.update(**rows)
    with pytest.raises(InvalidInputError, match=advice):
        fitted.update(add=(X[:9], y[:9]), data=(X[9:], y[9:], groups[9:]))


def test_streamed_groups_that_no_partitioner_reads_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(60), "b": 1.5, "kind": [0, 1] * 30, "user": [1, 2, 3] * 20})
    frame.to_parquet(file := tmp_path / "rows.parquet")
    source = DataSource(file, Schema(label="kind", classes=("0", "1"), groups="user"))
    model = DPAClassifier(GaussianNB(), 3, classes=["0", "1"])
    with pytest.raises(InvalidInputError, match="Set partitioner='group'"):
        fit_stream(model, tmp_path / "model", source)


def test_group_partitions_need_groups() -> None:
    with pytest.raises(InvalidInputError, match="groups"):
        ensemble(DecisionTreeClassifier(), partitioner="group").fit(DIGITS.X, DIGITS.y)


@pytest.mark.parametrize("kind", [str, float, "object"])
def test_the_type_of_the_group_names_changes_no_partition_of_a_contributor(kind: Any) -> None:
    """Two rows of one contributor never part, whatever container names them."""
    fitted = ensemble(GaussianNB(), partitioner="group")
    fitted.fit(DIGITS.X, DIGITS.y, groups=GROUPS.astype(kind))
    assigned = fitted.partitioner_.assign(DIGITS.X, groups=GROUPS.astype(kind))
    assert all(len(set(assigned[group == GROUPS])) == 1 for group in range(200))
