"""Members that only comparisons use: an unchanged partition keeps its member, bit for bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from registry import CASES

from tests.guarantees.campaign import RowAttacker
from tests.guarantees.checks import (
    Rows,
    assert_attack_stays_local,
    assert_order_does_not_matter,
    changed_members,
)
from tests.guarantees.registry import Case

every_case = pytest.mark.parametrize("case", CASES, ids=str)
quick_and_slow_cases = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * (case.name == "ss-tail")) for case in CASES],
    ids=str,
)


@cache
def fitted(case: Case) -> Any:
    return case.make().fit(case.data.X, case.data.y)


@quick_and_slow_cases
@pytest.mark.parametrize("size", [1, 3, 6])
def test_flipped_labels_change_members_of_touched_partitions_only(case: Case, size: int) -> None:
    clean, rows = fitted(case), case.data
    attacker = RowAttacker(rows.X, rows.y, clean.partitioner_, rows.classes, size)
    assert_attack_stays_local(case.make, clean, rows.X_test, attacker.attack("relabel", size))


@quick_and_slow_cases
def test_row_order_changes_no_member(case: Case) -> None:
    rows = Rows(case.data.X, case.data.y)
    assert_order_does_not_matter(case.make, rows, case.data.X_test, seed=1)


@every_case
def test_two_workers_train_the_same_members_as_one(case: Case) -> None:
    two = case.make(n_jobs=2).fit(case.data.X, case.data.y)
    assert not changed_members(fitted(case), two, case.data.X_test)
