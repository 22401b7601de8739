"""Flat weights: functions of samples that reproduce linear labels, with no row above the cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof_research.methods.flat_weights import FlatWeights


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X, y


def scores(weights: Any, y: Any) -> Any:
    return weights.astype(np.int64) @ np.eye(10, dtype=np.int64)[y]


def test_without_a_cap_the_weights_are_least_squares(digits: tuple[Any, Any]) -> None:
    X, y = digits
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    known, asked = unit[:1500], unit[1500:]
    design = np.column_stack([known, np.ones(len(known))])
    fitted = np.linalg.pinv(design) @ np.eye(10)[y[:1500]]
    expected = np.column_stack([asked, np.ones(len(asked))]) @ fitted
    found = scores(FlatWeights(64, 0.0).fit(X[:1500]).integers(X[1500:]), y[:1500])
    found = found / found.sum(axis=1, keepdims=True)
    assert np.abs(found - expected).max() < 1e-3


def test_the_ridge_is_that_of_ridge_regression(digits: tuple[Any, Any]) -> None:
    X, y = digits
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    centre = unit[:1500].mean(axis=0)
    known, asked = unit[:1500] - centre, unit[1500:] - centre
    alpha = 2.0 * (known * known).sum() / known.size * len(known)
    level = np.bincount(y[:1500]) / 1500
    gram = known.T @ known + alpha * np.eye(64)
    expected = asked @ np.linalg.solve(gram, known.T @ np.eye(10)[y[:1500]]) + level
    found = scores(FlatWeights(64, 0.0, ridge=2.0).fit(X[:1500]).integers(X[1500:]), y[:1500])
    assert np.abs(found / found.sum(axis=1, keepdims=True) - expected).max() < 1e-3


def test_no_row_counts_more_than_the_cap_and_scores_stay_near(digits: tuple[Any, Any]) -> None:
    X, y = digits
    plain = FlatWeights(40, 0.0).fit(X[:1500]).integers(X[1500:])
    flat = FlatWeights(40, 0.05, n_steps=60).fit(X[:1500]).integers(X[1500:])
    before, after = (scores(w, y[:1500]) for w in (plain, flat))
    before, after = (s / s.sum(axis=1, keepdims=True) for s in (before, after))
    largest = [np.abs(w).max(axis=1) / w.sum(axis=1) for w in (plain, flat)]
    assert np.median(largest[1] / largest[0]) < 0.7
    assert np.median(np.abs(after - before)) < 0.05
    right = [(s.argmax(axis=1) == y[1500:]).mean() for s in (before, after)]
    assert right[1] > right[0] - 0.1


def test_integers_leave_room_for_exact_sums(digits: tuple[Any, Any]) -> None:
    X, _ = digits
    weights = FlatWeights(20, 0.03).fit(X).integers(X[:100]).astype(np.int64)
    total = np.abs(weights).sum(axis=1)
    assert total.max() < 2**29
    assert total.min() > 2**26


def test_neighbours_differ_least_in_the_components_they_share() -> None:
    """Pairs share one direction of little variance, which principal components find last."""
    rng = np.random.default_rng(0)
    X = np.column_stack([10 + 0 * rng.random(400), rng.normal(size=(400, 5))])
    X[:, 5] = 0.2 * np.repeat(rng.normal(size=200), 2)
    near = np.arange(400)[:, None] ^ 1
    plain, shared = (FlatWeights(1, 0.0).fit(X, near=table) for table in (None, near))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    found = [abs(np.corrcoef(f.rows_[:, 0], unit[:, 5])[0, 1]) for f in (plain, shared)]
    assert found[0] < 0.5
    assert found[1] > 0.95


def test_the_rows_asked_beside_a_row_leave_no_trace_in_calls_of_one_size() -> None:
    """The experiments ask 250 rows a call; other sizes may round differently, as documented."""
    rng = np.random.default_rng(0)
    X, asked = rng.normal(size=(5000, 64)), rng.normal(size=(250, 64))
    fitted = FlatWeights(32).fit(X)
    expected = fitted.integers(asked)
    asked[100:] = rng.normal(size=(150, 64))
    assert np.array_equal(fitted.integers(asked)[:100], expected[:100])
