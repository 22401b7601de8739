"""The closed form of leave-one-out equals leaving rows out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from poisonproof.members.closed_form import KernelRidgeClassifier, RidgeClassifier
from poisonproof.members.closed_form.classifier import best_alpha

ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)


def left_out_error(make, X, targets) -> float:
    error = 0.0
    for row in range(len(X)):
        rest = np.arange(len(X)) != row
        model = make().fit(X[rest], targets[rest])
        error += float(np.square(model.predict(X[[row]]) - targets[row]).sum())
    return error


@pytest.mark.parametrize("seed", range(4))
def test_kernel_ridge_picks_the_alpha_with_the_smallest_error_on_rows_left_out(seed) -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).choice(len(y), 40, replace=False)
    X, targets = X[rows] / 16, np.eye(10)[y[rows]]
    errors = [
        left_out_error(lambda a=alpha: KernelRidge(kernel="rbf", gamma=0.1, alpha=a), X, targets)
        for alpha in ALPHAS
    ]
    gram = np.exp(-0.1 * np.square(X[:, None] - X).sum(axis=2))
    assert best_alpha(gram, targets, ALPHAS) == ALPHAS[int(np.argmin(errors))]


@pytest.mark.parametrize("seed", range(4))
def test_ridge_with_intercept_picks_the_alpha_with_the_smallest_error(seed) -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).choice(len(y), 40, replace=False)
    X, targets = X[rows] / 16, 2 * np.eye(10)[y[rows]] - 1
    errors = [left_out_error(lambda a=alpha: Ridge(alpha=a), X, targets) for alpha in ALPHAS]
    centred = X - X.mean(axis=0)
    chosen = best_alpha(
        centred @ centred.T, targets - targets.mean(axis=0), ALPHAS, np.full(40, 1 / 40)
    )
    assert chosen == ALPHAS[int(np.argmin(errors))]


@pytest.mark.parametrize(
    "make", [RidgeClassifier, lambda a, **o: KernelRidgeClassifier(alpha=a, **o)]
)
def test_loo_is_the_fit_with_the_chosen_alpha(make) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:60] / 16, y[:60]
    chosen = make("loo", alphas=ALPHAS).fit(X, y).decision_function(X)
    fixed = [make(alpha).fit(X, y).decision_function(X) for alpha in ALPHAS]
    assert sum(np.array_equal(chosen, scores) for scores in fixed) == 1
