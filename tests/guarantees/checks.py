"""The law, as functions: they raise `AssertionError` with the members that broke it.

They look at members through their digests and their votes, so the same functions judge the
library's classifiers and the deliberately leaky ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.guarantees.campaign import Attack, RowAttacker

Make = Callable[[], Any]


@dataclass(frozen=True)
class Rows:
    """What `fit` is given."""

    X: Any
    y: Any
    groups: Any = None
    sample_weight: Any = None

    def fit(self, classifier: Any) -> Any:
        optional = {"groups": self.groups, "sample_weight": self.sample_weight}
        given = {name: value for name, value in optional.items() if value is not None}
        return classifier.fit(self.X, self.y, **given)

    def with_rows(self, **changes: Any) -> Rows:
        return replace(self, **changes)


def changed_members(before: Any, after: Any, X_test: Any) -> set[int]:
    """Return the members whose digest or votes differ between two fitted classifiers."""
    digests = np.array(before.ensemble_.digests()) != np.array(after.ensemble_.digests())
    votes = (before.votes(X_test) != after.votes(X_test)).any(axis=0)
    return {int(index) for index in np.flatnonzero(digests | votes)}


def assert_same_members(before: Any, after: Any, X_test: Any) -> None:
    changed = changed_members(before, after, X_test)
    assert not changed, f"members {sorted(changed)} changed; none may"


def assert_only_touched_change(
    before: Any, after: Any, X_test: Any, touched: Iterable[int]
) -> None:
    changed = changed_members(before, after, X_test)
    outside = changed - {int(index) for index in touched}
    assert not outside, (
        f"members {sorted(outside)} changed, but only the partitions {sorted(touched)} were touched"
    )


def assert_attack_stays_local(make: Make, clean: Any, X_test: Any, attack: Attack) -> None:
    """Refit on an attack's rows; `clean` is the classifier fitted on the clean rows."""
    after = make().fit(attack.X, attack.y)
    assert_only_touched_change(clean, after, X_test, attack.touched)


def assert_order_does_not_matter(make: Make, rows: Rows, X_test: Any, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(rows.y))
    shuffled = rows.with_rows(
        X=rows.X[order],
        y=rows.y[order],
        groups=None if rows.groups is None else rows.groups[order],
        sample_weight=None if rows.sample_weight is None else rows.sample_weight[order],
    )
    assert_same_members(rows.fit(make()), shuffled.fit(make()), X_test)


def attack_kinds(classifier: Any) -> list[str]:
    """Return the kinds of attack that a classifier's threats cover."""
    if "insert_delete" in classifier.threats:
        return ["insert", "delete", "duplicate", "relabel", "replace", "reorder"]
    return ["relabel", "reorder"]


def aimed_partitions(attacker: RowAttacker, aim: str) -> list[int] | None:
    if aim == "largest":
        return [int(np.argmax(attacker.sizes))]
    if aim == "smallest":
        return [int(np.argmin(attacker.sizes))]
    return None
