"""The default member takes tables as they come: any units, constants, gaps, many rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.closed_form.scaled_kernel import LONGEST, MISSING, UNIT, learn_scales


@pytest.fixture(scope="module", params=[load_wine, load_breast_cancer], ids=["wine", "cancer"])
def table(request):
    X, y = request.param(return_X_y=True)
    return train_test_split(X, y, random_state=0)


def by_hand(X, y, X_test, weight):
    """The definition once more, in floating point and without rounding."""
    share = weight / weight.sum()
    mean = share @ X
    spread = np.sqrt(share @ (X - mean) ** 2)
    Z, Z_test = ((rows - mean) / spread for rows in (X, X_test))
    Z, Z_test = np.clip(Z, -3, 3), np.clip(Z_test, -3, 3)
    classes = np.unique(y)
    means = np.array([np.average(Z[y == c], axis=0, weights=weight[y == c]) for c in classes])
    sizes = np.array([share[y == c].sum() for c in classes])
    n = weight.sum()
    relevance = 1 - (1 - sizes @ means**2) * (n - 1) / (n - len(classes))
    worth = np.clip(relevance, 0, 1) + 0.01
    worth /= worth.sum()

    def kernel(left, right):
        apart = (worth * (left[:, None] - right) ** 2).sum(axis=2)
        return np.exp(-apart) + (left * worth) @ right.T

    # With a constant: the saddle point of the ridge problem.
    m = len(X)
    system = np.ones((m + 1, m + 1))
    system[:m, :m] = kernel(Z, Z) + 0.1 * np.diag(1 / weight)
    system[m, m] = 0
    right = np.zeros((m + 1, len(classes)))
    right[:m] = y[:, None] == classes
    solved = np.linalg.solve(system, right)
    return kernel(Z_test, Z) @ solved[:m] + solved[m]


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_the_definition(table, weighted) -> None:
    X, X_test, y, _ = table
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    clf = ScaledKernelClassifier().fit(X, y, weight)
    expected = by_hand(X, y, X_test, weight)
    if expected.shape[1] == 2:
        expected = expected[:, 1] - expected[:, 0]
    np.testing.assert_allclose(clf.decision_function(X_test), expected, atol=0.03)


def test_a_weight_of_two_counts_like_two_rows(table) -> None:
    X, X_test, y, _ = table
    clf = ScaledKernelClassifier(n_centers=2000)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = clf.fit(X, y, weight).decision_function(X_test)
    repeated = clf.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(repeated.decision_function(X_test), weighted, atol=1e-4)


def test_units_change_nothing_but_rounding(table) -> None:
    X, X_test, y, _ = table
    units = np.logspace(-200, 200, X.shape[1])
    plain = ScaledKernelClassifier().fit(X, y).decision_function(X_test)
    other = ScaledKernelClassifier().fit(X * units, y).decision_function(X_test * units)
    np.testing.assert_allclose(other, plain, atol=0.01)


def test_timestamps_neither_drown_the_other_columns_nor_lose_their_own_bits(table) -> None:
    X, X_test, y, y_test = table
    rng = np.random.default_rng(0)
    times, times_test = (1.7e18 + 3e16 * rng.random((len(rows), 1)) for rows in (X, X_test))
    clf = ScaledKernelClassifier().fit(np.hstack([X, times]), y)
    assert clf.score(np.hstack([X_test, times_test]), y_test) > 0.92
    # Here nothing but the time tells: ten minutes in fifty years.
    late = times[:, 0] > np.median(times)
    shifted = 1.7e18 + 6e11 * (times - 1.7e18) / 3e16
    only = ScaledKernelClassifier().fit(shifted, late)
    assert only.score(shifted, late) > 0.98


def test_columns_that_never_change_have_no_influence(table) -> None:
    X, X_test, y, _ = table
    rounding = 0.1 + np.arange(len(X))[:, None] % 2 * 2.0**-56
    constant = np.hstack([X, np.full((len(X), 1), 7.0), np.full((len(X), 1), np.nan), rounding])
    strange = np.hstack([X_test, np.full((len(X_test), 3), 1e9)])
    plain = ScaledKernelClassifier().fit(X, y).decision_function(X_test)
    np.testing.assert_array_equal(
        ScaledKernelClassifier().fit(constant, y).decision_function(strange), plain
    )


def test_a_column_that_hardly_ever_changes_cannot_drown_the_others(table) -> None:
    X, X_test, y, y_test = table
    rare = np.zeros((len(X), 20))
    rare[np.arange(20), np.arange(20)] = 1e-9
    clf = ScaledKernelClassifier().fit(np.hstack([X, rare]), y)
    assert clf.score(np.hstack([X_test, np.ones((len(X_test), 20))]), y_test) > 0.85


def test_columns_without_meaning_hardly_matter(table) -> None:
    X, X_test, y, y_test = table
    rng = np.random.default_rng(0)
    noise, noise_test = (rng.standard_normal((len(rows), 200)) for rows in (X, X_test))
    clf = ScaledKernelClassifier().fit(np.hstack([X, noise]), y)
    assert clf.score(np.hstack([X_test, noise_test]), y_test) > 0.92


def test_missing_cells_are_taken_and_may_tell_something(table) -> None:
    X, X_test, y, y_test = table
    rng = np.random.default_rng(0)
    holes, holes_test = (
        np.where(rng.random(rows.shape) < 0.2, np.nan, rows) for rows in (X, X_test)
    )
    assert ScaledKernelClassifier().fit(holes, y).score(holes_test, y_test) > 0.9
    asked = rng.random(len(y)) < 0.5
    only = np.where(asked, np.nan, rng.standard_normal(len(y)))[:, None]
    assert ScaledKernelClassifier().fit(only, asked).score(only, asked) == 1.0


def test_many_rows_are_fitted_through_some_of_them(table) -> None:
    X, X_test, y, y_test = table
    few = ScaledKernelClassifier(n_centers=40).fit(X, y)
    assert few.members_.offsets[-1] == 40
    assert few.score(X_test, y_test) > 0.92


def test_all_rows_as_centres_of_the_larger_system_are_the_same_fit(table) -> None:
    X, _, y, _ = table
    clf = ScaledKernelClassifier()
    support = np.round(1024 * (X - X.mean(0)) / X.std(0) / X.shape[1] ** 0.5)
    targets, weight = np.eye(y.max() + 1)[y], np.linspace(0.5, 2, len(y))
    dual, bias = clf._solve_all(support, targets, weight)
    other, level = clf._solve_centers(support, np.arange(len(y)), targets, weight)
    kernel = clf._kernel(support, support)
    np.testing.assert_allclose(kernel @ other + level, kernel @ dual + bias, atol=0.01)


@pytest.mark.parametrize("known", [2, 4, 20])
def test_a_column_that_is_nearly_always_missing_hurts_nobody(known):
    X, y = load_digits(return_X_y=True)
    X = np.tile(X, 6)
    gap = np.full((len(X), 1), np.nan)
    gap[:known, 0] = np.arange(known)
    X = np.hstack([X, gap])
    member = ScaledKernelClassifier().fit(X[:1347], y[:1347])
    assert np.mean(member.predict(X[1347:]) == y[1347:]) > 0.95


def test_a_missing_cell_never_counts_as_a_value():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 30))
    X[:38, 3] = np.nan
    weight = np.ones(40)
    weight[[38, 39]] = 1e-9
    scales = learn_scales(X, np.arange(40) % 2, weight, 0.01)
    values = scales.integers(X)
    assert (values == MISSING).any()
    assert np.abs(scales.support(values)).max() <= LONGEST * UNIT
