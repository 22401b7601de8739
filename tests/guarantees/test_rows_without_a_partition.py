"""A row that no partition takes is rejected alone; it does not stop the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError

from .checks import assert_same_members
from .data import data

DIGITS = data("digits")


def ensemble(partitioner: str, estimator: Any = None, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(
        estimator or GaussianNB(), 20, partitioner=partitioner, classes=range(10), **parameters
    )


@pytest.mark.parametrize("pixel", [-1.0, 0.5])
@pytest.mark.parametrize(
    "container", [np.asarray, sparse.csr_matrix, pd.DataFrame], ids=["array", "sparse", "frame"]
)
def test_a_broken_pixel_rejects_its_image_alone(container: Any, pixel: float) -> None:
    X, y = DIGITS.X.copy(), DIGITS.y
    X[17, 3] = X[99, 0] = pixel
    learner = DecisionTreeClassifier()
    with pytest.raises(InvalidRowsError, match="Row 17"):
        ensemble("pixel_sum", learner).fit(container(X), y)
    model = ensemble("pixel_sum", learner, invalid_rows="drop").fit(container(X), y)
    assert model.n_dropped_ == 2
    rest = np.delete(X, [17, 99], axis=0), np.delete(y, [17, 99])
    clean = ensemble("pixel_sum", learner).fit(container(rest[0]), rest[1])
    assert_same_members(clean, model, container(DIGITS.X_test))


@pytest.mark.parametrize("nobody", [None, float("nan")], ids=["None", "NaN"])
def test_a_missing_contributor_rejects_its_row_alone(nobody: object) -> None:
    X, y = DIGITS.X[:300], DIGITS.y[:300]
    groups = np.array([f"user{i % 40}" for i in range(300)], dtype=object)
    groups[5] = groups[250] = nobody
    with pytest.raises(InvalidInputError, match="Row 5 has no group"):
        ensemble("group").fit(X, y, groups=groups)
    model = ensemble("group", invalid_rows="drop").fit(X, y, groups=groups)
    assert model.n_dropped_ == 2
    keep = np.delete(np.arange(300), [5, 250])
    clean = ensemble("group").fit(X[keep], y[keep], groups=groups[keep])
    assert_same_members(clean, model, DIGITS.X_test)
    model.update(add=(X[:3], y[:3], np.array(["user1", nobody, "user2"], dtype=object)))
    both = np.append(keep, [0, 2])
    names = np.append(groups[keep], ["user1", "user2"])
    assert_same_members(ensemble("group").fit(X[both], y[both], groups=names), model, DIGITS.X_test)


def test_dropping_rows_without_any_groups_is_still_an_error() -> None:
    with pytest.raises(InvalidInputError, match="GroupHash needs groups"):
        ensemble("group", invalid_rows="drop").fit(DIGITS.X[:50], DIGITS.y[:50])
