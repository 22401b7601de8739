"""The closed forms compute what scikit-learn's estimators compute."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier as ScikitRidge
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    NearestMeanClassifier,
    NeighborsClassifier,
    RidgeClassifier,
)


@pytest.fixture(scope="module", params=[50, 900])
def digits(request):
    X, y = load_digits(return_X_y=True)
    n = request.param
    weight = np.random.default_rng(0).uniform(0.2, 3.0, n)
    return X[:n] / 16, y[:n], weight, X[900:] / 16


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_ridge(digits, fit_intercept, weighted) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = RidgeClassifier(0.5, fit_intercept=fit_intercept).fit(X, y, weight)
    theirs = ScikitRidge(0.5, fit_intercept=fit_intercept).fit(X, y, weight)
    np.testing.assert_allclose(
        ours.decision_function(X_test), theirs.decision_function(X_test), atol=1e-6
    )


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kernel", "name"),
    [("rbf", "rbf"), ("linear", "linear"), ("polynomial", "polynomial"), ("cosine", "cosine")],
)
def test_kernel_ridge(digits, kernel, name, weighted, precision) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = KernelRidgeClassifier(kernel, gamma=0.2, alpha=0.5, degree=2, precision=precision)
    theirs = KernelRidge(kernel=name, gamma=0.2, alpha=0.5, degree=2, coef0=1)
    scores = theirs.fit(X, np.eye(10)[y], sample_weight=weight).predict(X_test)
    tolerance = 2e-4 if precision == "double" else 2e-3
    np.testing.assert_allclose(
        ours.fit(X, y, weight).decision_function(X_test), scores, atol=tolerance
    )


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
def test_nearest_mean(digits) -> None:
    X, y, _, X_test = digits
    np.testing.assert_array_equal(
        NearestMeanClassifier().fit(X, y).predict(X_test),
        NearestCentroid().fit(X, y).predict(X_test),
    )


@pytest.mark.parametrize("n_neighbors", [1, 5, 60])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_neighbors(digits, n_neighbors, metric) -> None:
    X, y, _, X_test = digits
    # Away from integers, so that two rows at the same distance do not occur.
    X = X + np.random.default_rng(0).uniform(0, 1e-3, X.shape)
    theirs = KNeighborsClassifier(min(n_neighbors, len(X)), metric=metric, algorithm="brute")
    np.testing.assert_array_equal(
        NeighborsClassifier(n_neighbors, metric=metric).fit(X, y).predict(X_test),
        theirs.fit(X, y).predict(X_test),
    )
