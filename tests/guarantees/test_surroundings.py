"""What is neither data nor specification has no influence on any member."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from poisonproof import DPAClassifier
from poisonproof.estimators.certifying import member_scores
from poisonproof.estimators.saving import describe, member_spec
from poisonproof.exceptions import MemberWarning

from .checks import Rows, assert_same_members, changed_members
from .data import data
from .learners import GlobalStreamClassifier, OverwritingClassifier, ParallelClassifier
from .registry import CASES, Case

DIGITS = data("digits")


def ensemble(estimator: Any, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator, 20, classes=range(10), **parameters)


def _read_only(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    X = X.copy()
    X.setflags(write=False)
    return X


CONTAINERS = {
    "bytes": lambda X: X.astype(np.uint8),
    "int64": lambda X: X.astype(np.int64),
    "float32": lambda X: X.astype(np.float32),
    "big-endian": lambda X: X.astype(">f8"),
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    "read-only": _read_only,
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    "estimator", [DecisionTreeClassifier(), GaussianNB(), KNeighborsClassifier(1)], ids=str
)
def test_the_same_values_in_another_array_train_the_same_members(
    estimator: Any, container: str
) -> None:
    before = ensemble(estimator).fit(DIGITS.X, DIGITS.y)
    after = ensemble(estimator).fit(CONTAINERS[container](DIGITS.X), DIGITS.y)
    assert_same_members(before, after, DIGITS.X_test)
    assert np.array_equal(
        before.votes(DIGITS.X_test), after.votes(CONTAINERS[container](DIGITS.X_test))
    )


@pytest.mark.parametrize(
    "container",
    [pd.DataFrame, lambda X: pl.DataFrame(X, schema=[f"c{i}" for i in range(64)])],
    ids=["pandas", "polars"],
)
def test_a_frame_gives_the_same_partitions_and_votes_as_an_array(container: Any) -> None:
    before = ensemble(GaussianNB()).fit(DIGITS.X, DIGITS.y)
    after = ensemble(GaussianNB()).fit(container(DIGITS.X), DIGITS.y)
    assert np.array_equal(before.partition_sizes_, after.partition_sizes_)
    assert np.array_equal(before.votes(DIGITS.X_test), after.votes(container(DIGITS.X_test)))


def test_a_sparse_matrix_gives_the_same_partitions_and_votes_as_an_array() -> None:
    before = ensemble(DecisionTreeClassifier()).fit(DIGITS.X, DIGITS.y)
    for convert in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        after = ensemble(DecisionTreeClassifier()).fit(convert(DIGITS.X), DIGITS.y)
        assert np.array_equal(before.partition_sizes_, after.partition_sizes_)
        assert np.array_equal(before.votes(DIGITS.X_test), after.votes(convert(DIGITS.X_test)))


def test_how_a_sparse_matrix_stores_a_row_changes_no_member() -> None:
    """Stored zeros, unsorted indices and wide index types are not values."""
    tidy = sparse.csr_matrix(DIGITS.X)
    untidy = tidy.copy()
    untidy.data[:5] = 0
    tidy = untidy.copy()
    tidy.eliminate_zeros()
    for row in range(0, untidy.shape[0], 7):
        piece = slice(untidy.indptr[row], untidy.indptr[row + 1])
        untidy.indices[piece] = untidy.indices[piece][::-1]
        untidy.data[piece] = untidy.data[piece][::-1]
    untidy.has_sorted_indices = False
    untidy.indices = untidy.indices.astype(np.int64)
    untidy.indptr = untidy.indptr.astype(np.int64)
    test = sparse.csr_matrix(DIGITS.X_test)
    for estimator in (DecisionTreeClassifier(), KNeighborsClassifier(1)):
        before = ensemble(estimator).fit(tidy, DIGITS.y)
        after = ensemble(estimator).fit(untidy, DIGITS.y)
        assert_same_members(before, after, test)


@pytest.mark.parametrize("labels", [list, pd.Series, lambda y: y.astype(np.uint8)])
def test_the_container_of_the_labels_changes_no_member(labels: Any) -> None:
    before = ensemble(DecisionTreeClassifier()).fit(DIGITS.X, DIGITS.y)
    after = ensemble(DecisionTreeClassifier()).fit(DIGITS.X, labels(DIGITS.y))
    assert_same_members(before, after, DIGITS.X_test)


def _poisoned_frame(frame: pd.DataFrame, cells: dict[str, Any]) -> pd.DataFrame:
    row = {name: frame[name].iloc[0] for name in frame.columns} | cells
    columns = {name: [*frame[name].tolist(), row[name]] for name in frame.columns}
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    "cells",
    [
        {"count": 0.5},
        {"count": None},
        {"flag": None},
        {"name": "never seen before"},
        {"name": None},
        {"day": None},
    ],
    ids=lambda cells: "-".join(f"{k}={v}" for k, v in cells.items()),
)
@pytest.mark.parametrize("categorical", [False, True], ids=["plain", "categorical"])
def test_one_cell_that_turns_a_frames_column_into_another_type_changes_one_member(
    cells: dict[str, Any], categorical: bool
) -> None:
    """One empty cell makes pandas read a whole column as another type."""
    frame = _table()
    poisoned = _poisoned_frame(frame, cells)
    if categorical:
        listed = pd.CategoricalDtype(sorted(frame["name"].unique()))  # declared, without new rows
        for table in (frame, poisoned):
            table["name"] = (
                table["name"].where(table["name"].isin(listed.categories)).astype(listed)
            )
    y = np.arange(len(frame)) * 7 % 3
    model = DPAClassifier(_ColumnDigest(), 12, classes=range(3))
    before = sklearn.clone(model).fit(frame, y)
    after = sklearn.clone(model).fit(poisoned, np.append(y, 0))
    touched = after.partitioner_.assign(poisoned.iloc[-1:])
    changed = changed_members(before, after, frame.iloc[:50])
    assert changed <= set(touched.tolist())


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "count": rng.integers(0, 9, 300),
            "flag": rng.random(300) < 0.5,
            "name": rng.choice(["ant", "bee", "cat"], 300),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, 300), unit="D"),
            "size": rng.normal(size=300),
        }
    )


class _ColumnDigest(DecisionTreeClassifier):
    """A learner that remembers everything it was shown, types included."""

    def fit(self, X: Any, y: Any) -> _ColumnDigest:
        self.seen_ = [(str(name), str(X[name].dtype), X[name].tolist()) for name in X.columns]
        self.categories_ = [
            X[name].cat.categories.tolist() if hasattr(X[name], "cat") else None
            for name in X.columns
        ]
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[len(self.seen_[0][2]) % len(self.classes_)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def test_a_warnings_filter_changes_no_member() -> None:
    model = ensemble(LogisticRegression(max_iter=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = sklearn.clone(model).fit(DIGITS.X, DIGITS.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = sklearn.clone(model).fit(DIGITS.X, DIGITS.y)
    assert not after.failures_
    assert_same_members(before, after, DIGITS.X_test)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_numpy_error_settings_change_no_member(n_jobs: int) -> None:
    """Constant columns divide by zero in naive Bayes; that is the learner's affair."""
    rows = Rows(DIGITS.X * 1e-160, DIGITS.y)
    before = rows.fit(ensemble(GaussianNB()))
    with np.errstate(all="raise"):
        after = rows.fit(ensemble(GaussianNB(), n_jobs=n_jobs))
        assert_same_members(before, after, DIGITS.X_test)


@pytest.mark.parametrize("limit", [1, 2])
def test_the_callers_thread_count_changes_no_member(limit: int) -> None:
    model = ensemble(make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)))
    before = sklearn.clone(model).fit(DIGITS.X, DIGITS.y)
    with threadpool_limits(limits=limit):
        after = sklearn.clone(model).fit(DIGITS.X, DIGITS.y)
        assert_same_members(before, after, DIGITS.X_test)


def test_thread_variables_in_the_environment_change_no_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = ensemble(LogisticRegression(max_iter=20)).fit(DIGITS.X, DIGITS.y)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setitem(os.environ, name, "2")
    after = ensemble(LogisticRegression(max_iter=20), n_jobs=2).fit(DIGITS.X, DIGITS.y)
    assert_same_members(before, after, DIGITS.X_test)


def test_scikit_learns_settings_reach_the_workers() -> None:
    """Or two workers would train other members than one."""
    model = ensemble(make_pipeline(StandardScaler(), DecisionTreeClassifier()))
    with sklearn.config_context(transform_output="pandas"):
        one = sklearn.clone(model).fit(DIGITS.X, DIGITS.y)
        two = sklearn.clone(model).set_params(n_jobs=2).fit(DIGITS.X, DIGITS.y)
        assert_same_members(one, two, DIGITS.X_test)


def test_global_streams_are_left_as_they_were() -> None:
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    fitted = ensemble(GlobalStreamClassifier()).fit(DIGITS.X, DIGITS.y)
    fitted.votes(DIGITS.X_test)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_the_state_of_global_streams_changes_no_member() -> None:
    np.random.seed(1)  # noqa: NPY002
    before = ensemble(GlobalStreamClassifier()).fit(DIGITS.X, DIGITS.y)
    votes = before.votes(DIGITS.X_test)
    np.random.seed(2)  # noqa: NPY002
    after = ensemble(GlobalStreamClassifier()).fit(DIGITS.X, DIGITS.y)
    assert_same_members(before, after, DIGITS.X_test)
    assert np.array_equal(votes, after.votes(DIGITS.X_test))


_NOISY = GlobalStreamClassifier()
WITH_WORKERS = {
    "one-vs-rest": lambda n_jobs: OneVsRestClassifier(_NOISY, n_jobs=n_jobs),
    "bagging": lambda n_jobs: BaggingClassifier(_NOISY, 4, n_jobs=n_jobs),
    "voting": lambda n_jobs: VotingClassifier([("a", _NOISY), ("b", _NOISY)], n_jobs=n_jobs),
    "forest": lambda n_jobs: RandomForestClassifier(3, n_jobs=n_jobs),
    "nested": lambda n_jobs: make_pipeline(
        StandardScaler(), BaggingClassifier(_NOISY, 2, n_jobs=n_jobs)
    ),
}


@pytest.mark.parametrize("kind", WITH_WORKERS)
def test_workers_that_a_member_asks_for_change_no_vote(kind: str) -> None:
    """Their random streams are seeded by nobody, so they get none."""
    make = WITH_WORKERS[kind]
    models = [
        DPAClassifier(make(n_jobs), 3, classes=range(10)).fit(DIGITS.X[:300], DIGITS.y[:300])
        for n_jobs in (2, 2, None)
    ]
    first = models[0].votes(DIGITS.X_test)
    for model in models[1:]:
        assert_same_members(models[0], model, DIGITS.X_test)
        assert np.array_equal(first, model.votes(DIGITS.X_test))
    specs = {member_spec(model, describe(model)) for model in models}
    assert len(specs) == 1


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_a_member_that_calls_joblib_itself_works_in_one_thread(backend: str, n_jobs: int) -> None:
    model = DPAClassifier(ParallelClassifier(backend), 3, classes=range(10), n_jobs=n_jobs)
    before = sklearn.clone(model).fit(DIGITS.X[:300], DIGITS.y[:300])
    after = sklearn.clone(model).set_params(n_jobs=1).fit(DIGITS.X[:300], DIGITS.y[:300])
    votes = before.votes(DIGITS.X_test)
    assert np.array_equal(votes, before.votes(DIGITS.X_test))
    assert np.array_equal(votes, after.votes(DIGITS.X_test))
    scores = member_scores(before, DIGITS.X_test)
    assert np.array_equal(scores, member_scores(after, DIGITS.X_test))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_scaler_that_works_in_place_reaches_no_other_member(n_jobs: int) -> None:
    """At voting time all members are asked about the same rows."""
    X, X_test = DIGITS.X.copy(), DIGITS.X_test.copy()
    in_place = make_pipeline(StandardScaler(copy=False), KNeighborsClassifier(1))
    fitted = ensemble(in_place, n_jobs=n_jobs).fit(X, DIGITS.y)
    votes = fitted.votes(X_test)
    assert np.array_equal(X, DIGITS.X)
    assert np.array_equal(X_test, DIGITS.X_test)
    alone = [member.votes(DIGITS.X_test.copy()) for member in fitted.ensemble_.members]
    assert np.array_equal(votes, np.stack(alone, axis=1))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_learner_that_overwrites_the_rows_it_is_asked_about_is_stopped(n_jobs: int) -> None:
    X, X_test = DIGITS.X.copy(), DIGITS.X_test.copy()
    fitted = ensemble(OverwritingClassifier(), n_jobs=n_jobs).fit(X, DIGITS.y)
    with pytest.warns(MemberWarning, match="20 of 20 members abstain.*read-only"):
        assert (fitted.votes(X_test) == -1).all()
    assert np.array_equal(X, DIGITS.X)
    assert np.array_equal(X_test, DIGITS.X_test)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_votes_do_not_change_the_members(case: Case) -> None:
    fitted = case.make().fit(case.data.X, case.data.y)
    before = fitted.ensemble_.digests()
    first = fitted.votes(case.data.X_test)
    assert np.array_equal(first, fitted.votes(case.data.X_test))
    assert fitted.ensemble_.digests() == before
