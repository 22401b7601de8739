"""Closed-form learners and frozen features inside the classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poisonproof import DPAClassifier
from poisonproof.exceptions import GuaranteeError
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.closed_form import KernelRidgeClassifier, StackedMembers

from .partitions import LEARNERS


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    return X[:1300], y[:1300], X[1300:], y[1300:]


@pytest.mark.parametrize("name", LEARNERS)
def test_dpa_trains_all_members_in_one_computation(name, digits) -> None:
    X, y, X_test, y_test = digits
    clf = DPAClassifier(clone(LEARNERS[name]), n_partitions=30, classes=range(10)).fit(X, y)
    assert isinstance(clf.ensemble_, StackedMembers)
    assert clf.votes(X_test).shape == (len(X_test), 30)
    assert np.mean(clf.predict(X_test) == y_test) > 0.5


def test_frozen_features_help_and_keep_the_certificate(digits) -> None:
    X, y, X_test, y_test = digits
    frozen = make_pipeline(Deskew(), OrientationHistogram(cell=2, block=1, root=True))
    learner = KernelRidgeClassifier(gamma=2.0, alpha=0.01)
    clf = DPAClassifier(learner, n_partitions=30, features=frozen, classes=range(10)).fit(X, y)
    certificates = clf.certify(X_test)
    assert np.mean(certificates.labels == y_test) > 0.85
    assert np.median(certificates.radius) >= 5


def test_features_that_learn_are_refused(digits) -> None:
    X, y, *_ = digits
    clf = DPAClassifier(KernelRidgeClassifier(), features=StandardScaler(), classes=range(10))
    with pytest.raises(GuaranteeError, match="learns"):
        clf.fit(X, y)
