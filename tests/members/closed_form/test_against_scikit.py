"""The closed forms compute what scikit-learn's estimators compute."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier as ScikitRidge

from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
)


@pytest.fixture(scope="module", params=[50, 900])
def digits(request):
    X, y = load_digits(return_X_y=True)
    n = request.param
    weight = np.random.default_rng(0).uniform(0.2, 3.0, n)
    return X[:n] / 16, y[:n], weight, X[900:] / 16


@pytest.mark.parametrize("weighted", [False, True])
def test_ridge(digits, weighted) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = RidgeClassifier(0.5).fit(X, y, weight)
    theirs = ScikitRidge(0.5).fit(X, y, weight)
    np.testing.assert_allclose(
        ours.decision_function(X_test), theirs.decision_function(X_test), atol=1e-6
    )


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "cosine"])
def test_kernel_ridge(digits, kernel, weighted, precision) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = KernelRidgeClassifier(kernel, gamma=0.2, alpha=0.5, precision=precision)
    theirs = KernelRidge(kernel=kernel, gamma=0.2, alpha=0.5)
    scores = theirs.fit(X, np.eye(10)[y], sample_weight=weight).predict(X_test)
    tolerance = 2e-4 if precision == "double" else 2e-3
    np.testing.assert_allclose(
        ours.fit(X, y, weight).decision_function(X_test), scores, atol=tolerance
    )
