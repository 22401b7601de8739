"""The closed forms compute what scikit-learn's estimators compute."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeClassifier as ScikitRidge
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

# DELETED BernoulliNaiveBayes, GaussianNaiveBayes, LinearDiscriminantClassifier
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


@pytest.mark.parametrize("shrinkage", [0.1, 0.9])
def test_linear_discriminant(digits, shrinkage) -> None:
    X, y, _, X_test = digits
    ours = LinearDiscriminantClassifier(shrinkage).fit(X, y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(X_test), theirs.decision_function(X_test), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_gaussian_naive_bayes(digits, weighted) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = GaussianNaiveBayes(0.1).fit(X, y, weight)
    # scikit-learn takes the largest variance without the weights.
    share = 0.1
    if weight is not None:
        mean = np.average(X, axis=0, weights=weight)
        weighted_variance = np.average((X - mean) ** 2, axis=0, weights=weight).max()
        share = 0.1 * weighted_variance / X.var(axis=0).max()
    theirs = GaussianNB(var_smoothing=share).fit(X, y, weight)
    joint = theirs.predict_joint_log_proba(X_test)
    constant = -0.5 * X.shape[1] * np.log(2 * np.pi)
    np.testing.assert_allclose(ours.decision_function(X_test) + constant, joint, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_bernoulli_naive_bayes(digits, weighted) -> None:
    X, y, weight, X_test = digits
    weight = weight if weighted else None
    ours = BernoulliNaiveBayes(0.5, threshold=0.4).fit(X, y, weight)
    theirs = BernoulliNB(alpha=0.5, binarize=0.4).fit(X, y, weight)
    np.testing.assert_allclose(
        ours.decision_function(X_test), theirs.predict_joint_log_proba(X_test), atol=1e-5
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
