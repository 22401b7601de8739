"""If a partition does not change, its member does not change, bit for bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poisonproof import DPAClassifier
from tests.guarantees.campaign import RowAttacker

from .checks import (
    Rows,
    aimed_partitions,
    assert_attack_stays_local,
    assert_only_touched_change,
    assert_order_does_not_matter,
    attack_kinds,
    changed_members,
)
from .data import data
from .learners import GlobalStreamClassifier
from .registry import CASES, INSERT_DELETE_CASES, Case

# Rows that a learner cannot digest make its member abstain, which is said in a warning.
pytestmark = pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_insert_delete_case = pytest.mark.parametrize("case", INSERT_DELETE_CASES, ids=str)


@cache
def fitted(name: str) -> Any:
    case = next(case for case in CASES if case.name == name)
    return case.make().fit(case.data.X, case.data.y)


def attacker(case: Case, seed: int) -> RowAttacker:
    data, partitioner = case.data, fitted(case.name).partitioner_
    return RowAttacker(data.X, data.y, partitioner, data.classes, seed, whole=case.whole)


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(["insert", "delete", "duplicate", "relabel", "replace", "reorder"]),
    size=st.integers(1, 6),
    aim=st.sampled_from(["anywhere", "largest", "smallest"]),
)
def test_an_attack_changes_members_of_touched_partitions_only(
    case: Case, seed: int, kind: str, size: int, aim: str
) -> None:
    clean = fitted(case.name)
    kinds = attack_kinds(clean)
    kind = kind if kind in kinds else kinds[0]
    attackers = attacker(case, seed)
    attack = attackers.attack(kind, size, partitions=aimed_partitions(attackers, aim))
    assert_attack_stays_local(case.make, clean, case.data.X_test, attack)


@every_case
def test_row_order_changes_no_member(case: Case) -> None:
    rows = Rows(case.data.X, case.data.y)
    assert_order_does_not_matter(case.make, rows, case.data.X_test, seed=1)


@every_case
def test_two_workers_train_the_same_members_as_one(case: Case) -> None:
    data = case.data
    two = case.make(n_jobs=2).fit(data.X, data.y)
    assert not changed_members(fitted(case.name), two, data.X_test)


@every_case
def test_another_seed_trains_other_streams_but_the_same_seed_the_same(case: Case) -> None:
    data = case.data
    again = case.make().fit(data.X.copy(), data.y.copy())
    assert not changed_members(fitted(case.name), again, data.X_test)
    if case.name in {"random-forest", "sgd", "mlp", "global-streams"}:
        other = case.make(random_state=1).fit(data.X, data.y)
        assert len(changed_members(fitted(case.name), other, data.X_test)) == len(
            other.ensemble_.digests()
        )


def test_members_of_equal_partitions_do_not_share_a_stream() -> None:
    """Contributors who hand in the same rows have equal partitions, and draw differently."""
    digits, n = data("digits"), 50
    X, y = np.tile(digits.X[:n], (6, 1)), np.tile(digits.y[:n], 6)
    groups = np.repeat([f"user{i}" for i in range(6)], n)
    classifier = DPAClassifier(
        GlobalStreamClassifier(), 40, partitioner="group", classes=digits.classes
    ).fit(X, y, groups=groups)
    equal = np.array(classifier.ensemble_.digests())[classifier.partition_sizes_ == n]
    assert len(set(equal)) == len(equal) > 1


@every_insert_delete_case
def test_growing_the_largest_partition_changes_its_member_alone(case: Case) -> None:
    """Padding to the longest partition would show here."""
    attackers = attacker(case, seed=2)
    largest = int(np.argmax(attackers.sizes))
    attack = attackers.attack("insert", 40, partitions=[largest])
    assert attack.touched.tolist() == [largest]
    assert_attack_stays_local(case.make, fitted(case.name), case.data.X_test, attack)


@every_insert_delete_case
def test_filling_an_empty_partition_changes_its_member_alone(case: Case) -> None:
    data, attackers = case.data, attacker(case, seed=3)
    emptied = 5
    keep = attackers.assignment != emptied
    clean = case.make().fit(data.X[keep], data.y[keep])
    assert clean.partition_sizes_[emptied] == 0
    assert (clean.votes(data.X_test)[:, emptied] == -1).all()
    smaller = RowAttacker(
        data.X[keep], data.y[keep], clean.partitioner_, data.classes, seed=3, whole=case.whole
    )
    attack = smaller.attack("insert", 6, partitions=[emptied])
    assert_attack_stays_local(case.make, clean, data.X_test, attack)


def _one_row(case: Case, value: float) -> np.ndarray[Any, Any]:
    row = np.asarray(case.data.X[:1], dtype=np.float64).copy()
    row[0, 3] = value
    return row


@every_insert_delete_case
@pytest.mark.parametrize("value", [0.5, -0.0, 1e300, -1e300, 2.0**60, 5e-324])
def test_a_row_that_changes_the_containers_dtype_changes_one_member(
    case: Case, value: float
) -> None:
    if case.whole and (value != int(value) or abs(value) > 2**53):
        pytest.skip("takes whole numbers only")
    data, row = case.data, _one_row(case, value)
    after = case.make().fit(np.concatenate([data.X, row]), np.append(data.y, data.y[0]))
    touched = after.partitioner_.assign(row)
    assert_only_touched_change(fitted(case.name), after, data.X_test, touched)


@every_insert_delete_case
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_invalid_row_is_refused_or_dropped_alone(case: Case, value: float) -> None:
    if case.whole:
        pytest.skip("takes whole numbers only")
    data, row = case.data, _one_row(case, value)
    poisoned = np.concatenate([data.X, row]), np.append(data.y, data.y[0])
    after = case.make(invalid_rows="drop").fit(*poisoned)
    touched = [] if after.n_dropped_ else after.partitioner_.assign(row)
    assert_only_touched_change(fitted(case.name), after, data.X_test, touched)
