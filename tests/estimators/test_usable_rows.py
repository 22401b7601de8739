"""Which rows the members can take, looked at cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from poisonproof import DPAClassifier
from poisonproof.estimators.checked_table import SampleRules
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.exceptions import InvalidRowsError
from poisonproof.features import FixedScale

LARGEST = 2**1024 - 2**970 - 1  # one more rounds to infinity
CELLS: dict[str, Any] = {
    "number": 1.5,
    "text": "x",
    "bytes": b"x",
    "date": pd.Timestamp("2020-01-01"),
    "missing": None,
    "infinity": -np.inf,
    "long integer": 2**53 + 1,
    "negative long integer": -(2**80) - 1,
    "largest": LARGEST,
    "beyond float64": LARGEST + 1,
    "negative beyond float64": -LARGEST - 1,
}
NUMBERS = {"number", "long integer", "negative long integer", "largest"}
INFINITE = {"infinity", "beyond float64", "negative beyond float64"}
CASES = [
    pytest.param(NeighborVoteClassifier(), NUMBERS, id="compared as they are"),
    pytest.param(DPAClassifier(GaussianNB(), 5, features=FixedScale()), NUMBERS, id="fixed map"),
    pytest.param(
        DPAClassifier(HistGradientBoostingClassifier(), 5, features=FixedScale()),
        NUMBERS,
        id="fixed map, which takes no gaps",
    ),
    pytest.param(
        DPAClassifier(GaussianNB(), 5), set(CELLS) - INFINITE - {"missing"}, id="members' business"
    ),
    pytest.param(
        DPAClassifier(HistGradientBoostingClassifier(), 5),
        set(CELLS) - INFINITE,
        id="members' business, gaps taken",
    ),
]


@pytest.mark.parametrize(("classifier", "expected"), CASES)
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_every_cell_decides_about_its_own_row(
    classifier: Any, expected: set[str], column: int, container: Any
) -> None:
    rows = np.full((len(CELLS), 2), 2.5, dtype=object)
    rows[:, column] = list(CELLS.values())
    usable = SampleRules.of(classifier).usable(container(rows))
    assert {name for name, good in zip(CELLS, usable, strict=True) if good} == expected


TOO_LARGE: dict[str, Any] = {
    "float": 1e300,
    "below": -2e15,
    "integer": 10**16,
    "beyond float64": 10**400,
    "text": "1e300",
    "bytes": b"-1e300",
}


@pytest.mark.parametrize("cell", TOO_LARGE.values(), ids=TOO_LARGE)
@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_a_number_that_could_keep_a_solver_from_ending_rejects_its_row(
    cell: Any, container: Any
) -> None:
    """liblinear does not return where squares overflow; 1e15 it takes."""
    rows = np.full((4, 2), 2.5, dtype=object)
    rows[1:3, 1] = cell, 1e15
    for member in (LinearSVC(), make_pipeline(CalibratedClassifierCV())):
        classifier = DPAClassifier(member, 2)
        usable = SampleRules.of(classifier, training=True).usable(container(rows))
        assert usable.tolist() == [True, False, True, True]


def test_other_members_take_large_numbers_and_all_are_asked_about_them() -> None:
    assert SampleRules.of(DPAClassifier(GaussianNB(), 2), training=True).limit == np.inf
    X, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 2
    classifier = DPAClassifier(LinearSVC(), 2, classes=[0, 1]).fit(X, y)
    assert classifier.predict([[1e300, 0.0]]).shape == (1,)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_row_of_1e300_is_an_error_or_is_dropped_before_liblinear_sees_it(container: Any) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = np.vstack([X[:300], np.full((1, 64), 1e300)]), np.append(y[:300], 3)
    classifier = DPAClassifier(LinearSVC(), 3, classes=range(10))
    with pytest.raises(InvalidRowsError, match=r"beyond 1e\+15 .* in row 300 "):
        classifier.fit(container(X), y)
    classifier.set_params(invalid_rows="drop").fit(container(X), y)
    assert classifier.n_dropped_ == 1
    with pytest.raises(InvalidRowsError, match="in row 2;"):
        classifier.set_params(invalid_rows="raise").fit(
            container(X[:300]), y[:300], sample_weight=[1, 1, 1e300] + [1] * 297
        )


@pytest.mark.parametrize("wrap", [lambda member: member, make_pipeline, OneVsOneClassifier])
def test_a_row_that_libsvm_never_finishes_takes_limited_steps(wrap: Any) -> None:
    """One cell of 1e15 among digits; without it this takes some 100 steps."""
    X, y = load_digits(return_X_y=True)
    X, y = np.vstack([X[:200], np.zeros(64)]), np.append(y[:200], 1)
    X[200, 3] = 1e15
    classifier = DPAClassifier(wrap(SVC(kernel="linear")), 1, classes=range(10)).fit(X, y)
    assert classifier.partition_sizes_.sum() == 201
    assert not classifier.failures_
    specification = dict(classifier._learner().specification())
    assert "max_iter=1000000" in specification["parameters"]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, object])
def test_long_integers_are_numbers_in_every_type(kind: Any) -> None:
    rows = np.array([[2**53 + 1, 1], [2**62 + 1, 2]], dtype=kind)
    for container in (rows, pd.DataFrame(rows)):
        assert SampleRules.of(NeighborVoteClassifier()).usable(container).all()
