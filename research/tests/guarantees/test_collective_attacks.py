"""Collective certificates: contributors who own whole members turn no more rows than certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier
from poisonproof_research.methods.collective import (
    collective_bound,
    collective_certificate,
    make_problem,
)
from poisonproof_research.methods.finite_aggregation import FiniteAggregationClassifier

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 600), slice(1200, 1500)
GROUPS = (np.arange(600) // 3).astype(str)


MODELS: dict[str, Any] = {
    "partitions": DPAClassifier(
        KNeighborsClassifier(1), 12, partitioner="group", classes=range(10)
    ),
    "buckets": FiniteAggregationClassifier(
        KNeighborsClassifier(1), 8, 2, partitioner="group", classes=range(10)
    ),
}


def fit(name: str, rows: Any, labels: Any, groups: Any) -> Any:
    return clone(MODELS[name]).fit(rows, labels, groups=groups)


def strangers(clf: Any, owned: Any) -> list[str]:
    """Return names of new contributors who fall into these partitions or buckets."""
    names = np.array([f"stranger {number}" for number in range(2000)])
    places = clf.partitioner_.assign(np.zeros((2000, 1)), groups=names)
    return [str(names[np.flatnonzero(places == bucket)[0]]) for bucket in owned]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_contributors_who_own_members_turn_no_more_rows_than_certified(
    size: int, name: str
) -> None:
    clean = fit(name, X[TRAIN], Y[TRAIN], GROUPS)
    votes = clean.votes(X[TEST])
    before = clean.predict(X[TEST])
    spread = getattr(clean, "spread_", None)
    certificate = collective_certificate(votes, 10, size, membership=spread)
    problem = make_problem(votes, 10, membership=spread)
    _, strongest = collective_bound(problem, size)
    rng = np.random.default_rng(size)
    turned = []
    attacks = (rng.permutation(len(problem.buckets))[:size] for _ in range(3))
    for owned in [strongest, *attacks]:
        names = strangers(clean, owned)
        # Each hands in all test rows under the label that is second there.
        rows = np.concatenate([X[TRAIN], *[X[TEST]] * size])
        rivals = np.tile(clean.certify(X[TEST]).runner_up, size)
        groups = np.concatenate([GROUPS, np.repeat(names, len(X[TEST]))])
        poisoned = fit(name, rows, np.concatenate([Y[TRAIN], rivals]), groups)
        turned.append(int((poisoned.predict(X[TEST]) != before).sum()))
    assert max(turned) <= certificate.changed[0]
    assert turned[0] >= 0.9 * certificate.attained[0] > 0
    assert certificate.changed[0] <= certificate.separately[0]


@pytest.mark.parametrize("name", MODELS)
def test_one_row_at_a_time_would_promise_less(name: str) -> None:
    clean = fit(name, X[TRAIN], Y[TRAIN], GROUPS)
    certificate = collective_certificate(
        clean.votes(X[TEST]), 10, [1, 2, 3], membership=getattr(clean, "spread_", None)
    )
    assert (certificate.changed < certificate.separately).any()
