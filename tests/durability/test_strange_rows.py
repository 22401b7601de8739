"""Rows of any kind can be kept, and a store that keeps them is updated as if trained anew."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof import DPAClassifier, load
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import InvalidRowsError

N, K = 60, 4
RNG = np.random.default_rng(0)
NUMBERS = RNG.integers(0, 50, N)
LABELS = NUMBERS % 3
DAY = datetime.date(2020, 1, 1)
EAST = datetime.timezone(datetime.timedelta(hours=2))


class Witness(ClassifierMixin, BaseEstimator):
    """A member that is what it saw: containers, types and values."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        if hasattr(X, "columns"):
            self.kind_ = [(str(name), str(X[name].dtype)) for name in X.columns]
            cells = [cell for name in X.columns for cell in X[name].tolist()]
        else:
            array = X.toarray() if sparse.issparse(X) else np.asarray(X)
            self.kind_ = [(type(X).__name__, str(array.dtype))]
            cells = array.ravel().tolist()
        self.cells_ = [f"{type(cell).__name__} {cell!r}" for cell in cells]
        return self

    def predict(self, X: Any) -> Any:
        return np.full(X.shape[0], self.classes_[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


TRUSTED = [f"{Witness.__module__}.{Witness.__qualname__}"]


def hour(number: int) -> datetime.datetime:
    return datetime.datetime(2020, 1, 1, number % 24, tzinfo=EAST)


def objects(make: Any) -> pd.Series:
    return pd.Series([make(int(number)) for number in NUMBERS], dtype=object)


COLUMNS = {
    "integers beside nothing": pd.array([n + 2**60 if n % 7 else None for n in NUMBERS], "Int64"),
    "large unsigned": pd.Series(NUMBERS.astype(np.uint64) + np.uint64(2**63)),
    "text": pd.array([f"a{n}" if n % 5 else None for n in NUMBERS], dtype="string"),
    "odd text": objects(lambda n: f"\udce9\0{n}"),
    "categories": pd.Categorical([f"c{n % 9}" for n in NUMBERS]),
    "dates": objects(lambda n: DAY + datetime.timedelta(days=n)),
    "instants": pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(NUMBERS, unit="h")),
    "instants of a zone": objects(hour),
    "one date among texts": objects(lambda n: DAY if n == NUMBERS[55] else f"x{n}"),
    "all kinds": objects(
        lambda n: [n, n / 3, f"x{n}", None, bytes([n]), True, np.nan, -0.0, 10**30][n % 9]
    ),
}
SAMPLES: dict[str, Any] = {
    **{name: pd.DataFrame({"u": NUMBERS / 7, "v": column}) for name, column in COLUMNS.items()},
    "polars": pl.DataFrame({"u": NUMBERS / 7, "v": [DAY] * N, "w": [f"a{n}" for n in NUMBERS]}),
    "objects": np.array([[n, f"b{n}", None] for n in NUMBERS.tolist()], dtype=object),
    "long doubles": (NUMBERS[:, None] / 7).astype(np.longdouble),
    "nanoseconds": NUMBERS[:, None].astype("M8[ns]"),
    "sparse": sparse.random(N, 30, density=0.2, random_state=0, format="csc"),
}


def cut(X: Any, rows: list[int]) -> Any:
    if isinstance(X, pd.DataFrame):
        return X.iloc[rows]
    return X.tocsr()[rows] if sparse.issparse(X) else X[rows]


def make() -> DPAClassifier:
    return DPAClassifier(Witness(), K, classes=[0, 1, 2])


@pytest.mark.parametrize("name", SAMPLES)
def test_an_updated_store_of_strange_rows_equals_training_anew(name: str, tmp_path: Path) -> None:
    X, path = SAMPLES[name], tmp_path / "model"
    first, new, gone = list(range(50)), list(range(50, N)), [0, 1, 2]
    add, remove = (cut(X, new), LABELS[new]), (cut(X, gone), LABELS[gone])
    make().fit_into(path, cut(X, first), LABELS[first], keep_data=True)
    update_model(path, add, remove, trusted=TRUSTED)
    rest = [row for row in range(N) if row not in gone]
    scratch = make().fit(cut(X, rest), LABELS[rest])
    assert not scratch.failures_
    stored = load(path, trusted=TRUSTED)
    assert stored.partition_digests_ == scratch.partition_digests_
    assert stored.ensemble_.digests() == scratch.ensemble_.digests()
    assert audit_model(path, sample="all", trusted=TRUSTED).passed


COUNT = np.arange(40)
MIXTURES = {
    "large integers and floats": (COUNT + 2**60, COUNT + 0.5),
    "unsigned and signed": (COUNT.astype(np.uint64) + np.uint64(2**63), COUNT + 2**60),
    "texts and numbers": (np.array([f"a{n}" for n in COUNT]), COUNT),
    "bytes and texts": (np.array([b"a"] * 40), np.array([f"a{n}" for n in COUNT])),
    "days and nanoseconds": (COUNT.astype("M8[D]"), COUNT.astype("M8[ns]")),
    "far days and nanoseconds": ((COUNT + 200_000).astype("M8[D]"), COUNT.astype("M8[ns]")),
    "dates and numbers": (COUNT.astype("M8[D]"), COUNT),
    "half and double precision": (COUNT.astype(np.float16), COUNT + 70_000.1),
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("table", [False, True], ids=["array", "frame"])
def test_rows_of_another_type_change_no_cell_of_the_kept_ones(
    name: str, table: bool, tmp_path: Path
) -> None:
    def container(cells: Any) -> Any:
        return pd.DataFrame({"v": pd.Series(cells)}) if table else cells[:, np.newaxis]

    first, new = MIXTURES[name]
    y = COUNT % 3
    make().fit_into(tmp_path / "model", container(first), y, keep_data=True)
    update_model(tmp_path / "model", (container(new), y), trusted=TRUSTED)
    both = np.empty(80, dtype=object)
    for place, cell in enumerate([*first, *new]):
        both[place] = cell
    scratch = make().fit(container(both), np.tile(y, 2))
    stored = load(tmp_path / "model", trusted=TRUSTED)
    assert stored.partition_digests_ == scratch.partition_digests_
    seen = [member.estimator.cells_ for member in stored.ensemble_.loaded.members]
    assert seen == [member.estimator.cells_ for member in scratch.ensemble_.members]
    assert audit_model(tmp_path / "model", sample="all", trusted=TRUSTED).passed


def test_large_integers_are_not_rounded_into_a_sparse_matrix_of_floats(tmp_path: Path) -> None:
    first, new = (sparse.csr_matrix(cells[:, np.newaxis]) for cells in (COUNT + 2**60, COUNT + 0.5))
    y = COUNT % 3
    make().fit_into(tmp_path / "model", first, y, keep_data=True)
    with pytest.raises(InvalidRowsError, match="cannot be held in one container"):
        update_model(tmp_path / "model", (new, y), trusted=TRUSTED)
    assert audit_model(tmp_path / "model", sample="all", trusted=TRUSTED).passed
