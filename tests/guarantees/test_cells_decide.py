"""What one row holds decides about that row alone: no dtype that all rows share, no container."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from poisonproof import DPAClassifier
from poisonproof.data import Schema, read_table
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.features import Deskew, FixedScale, HashedNGrams
from poisonproof.members.closed_form import RidgeClassifier

pytestmark = pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")

X, y = load_digits(return_X_y=True)
ONE_ROW = 1  # an inserted row may change one member


def changed(before: Any, after: Any) -> int:
    return int(np.sum(np.array(before.ensemble_.digests()) != after.ensemble_.digests()))


def object_array(rows: list[list[Any]]) -> Any:
    return np.array(rows, dtype=object)


def frame_with_gaps() -> pd.DataFrame:
    frame = pd.DataFrame(X[:1500]).rename(columns=str)
    frame.iloc[np.random.default_rng(0).choice(1500, 60, replace=False), 10] = np.nan
    return frame


@pytest.mark.parametrize("cell", ["x", 10**30, None, pd.Timestamp("2020-01-01")], ids=str)
@pytest.mark.parametrize("member", [GaussianNB(), RidgeClassifier()], ids=["bayes", "ridge"])
def test_a_strange_cell_does_not_bring_dropped_rows_back(member: Any, cell: Any) -> None:
    frame = frame_with_gaps()
    clf = DPAClassifier(member, 50, classes=range(10), invalid_rows="drop")
    before = clf.fit(frame, y[:1500])
    assert before.n_dropped_ == 60
    row = frame.iloc[[0]].astype(object)
    row.iloc[0, 10] = cell
    poisoned = pd.concat([frame, row], ignore_index=True)
    after = DPAClassifier(**clf.get_params(deep=False))
    after.fit(poisoned, np.append(y[:1500], 0))
    assert after.n_dropped_ == 60 + (cell is None)
    assert changed(before, after) <= ONE_ROW


def test_the_dtype_of_a_frame_does_not_decide_which_rows_are_dropped() -> None:
    frame = frame_with_gaps()
    clf = DPAClassifier(GaussianNB(), 20, classes=range(10), invalid_rows="drop")
    floats = clf.fit(frame, y[:1500]).ensemble_.digests()
    assert clf.fit(frame.astype(object), y[:1500]).ensemble_.digests() == floats
    assert clf.fit(frame.astype(object).to_numpy(), y[:1500]).n_dropped_ == 60


@pytest.mark.parametrize("label", [b"x", "x", 0.5, None, 2**63, np.float32(1), (1, 2)], ids=repr)
@pytest.mark.parametrize("first", [0, 2**53], ids=["small", "large"])
def test_a_label_of_another_type_leaves_the_labels_of_other_rows_alone(
    label: Any, first: int
) -> None:
    labels = [first + int(code) for code in y]
    clf = DPAClassifier(
        GaussianNB(), 20, classes=[first + code for code in range(10)], invalid_rows="drop"
    )
    before = DPAClassifier(**clf.get_params(deep=False)).fit(X, labels)
    after = clf.fit(np.vstack([X, X[:1]]), [*labels, label])
    assert after.n_dropped_ <= ONE_ROW
    assert changed(before, after) <= ONE_ROW


def test_a_training_set_without_a_usable_row_is_refused() -> None:
    clf = DPAClassifier(GaussianNB(), 20, classes=["a", "b"], invalid_rows="drop")
    with pytest.raises(InvalidRowsError, match="none of the"):
        clf.fit(X, y)


class Flattened(GaussianNB):
    """Takes images of two axes."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(np.asarray(X, dtype=float).reshape(len(X), -1), y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def test_a_large_number_in_an_image_does_not_bring_dropped_images_back() -> None:
    images = X[:600].reshape(600, 8, 8).copy()
    images[::10, 3, 3] = np.nan
    clf = DPAClassifier(Flattened(), 20, classes=range(10), invalid_rows="drop")
    before = DPAClassifier(**clf.get_params(deep=False)).fit(images.tolist(), y[:600])
    large = np.full((8, 8), 2.0**60).tolist()
    after = clf.fit([*images.tolist(), large], np.append(y[:600], 0))
    assert (before.n_dropped_, after.n_dropped_) == (60, 60)
    assert changed(before, after) <= ONE_ROW


def test_a_label_cannot_move_the_rows_of_sorted_partitions() -> None:
    clf = DPAClassifier(
        GaussianNB(), 20, partitioner="sorted", classes=range(10), invalid_rows="drop"
    )
    labels = y.copy()
    labels[3] = 99
    with pytest.raises(GuaranteeError, match="cannot be dropped"):
        clf.fit(X, labels)


class Doubled(TransformerMixin, BaseEstimator):
    """A user's own map, row by row, that inherits the overflow of its input's dtype."""

    learns_nothing = True

    def fit(self, X: Any, y: Any = None) -> Doubled:
        return self

    def transform(self, X: Any) -> Any:
        return X * 20


def test_a_users_own_map_sees_values_and_no_dtype() -> None:
    clf = DPAClassifier(GaussianNB(), 20, classes=range(10), features=Doubled())
    small = X.astype(np.uint8)
    before = DPAClassifier(**clf.get_params(deep=False)).fit(small, y)
    after = clf.fit(np.vstack([small, np.full((1, 64), 0.5)]), np.append(y, 0))
    assert changed(before, after) <= ONE_ROW


@pytest.mark.parametrize(
    ("row", "member"),
    [
        (["x", 1, 2, 3], make_pipeline(OneHotEncoder(handle_unknown="ignore"), MultinomialNB())),
        ([0.5, 0.5, 0.5, 0.5], GaussianNB()),
    ],
    ids=["a text", "a fraction among large integers"],
)
def test_a_row_of_another_type_leaves_the_rows_of_a_list_alone(row: Any, member: Any) -> None:
    rng = np.random.default_rng(1)
    rows = (2**60 + rng.integers(0, 7, (400, 4))).tolist()
    labels = rng.integers(0, 2, 400).tolist()
    clf = DPAClassifier(member, 20, classes=[0, 1])
    before = DPAClassifier(**clf.get_params(deep=False)).fit(rows, labels)
    after = clf.fit([*rows, row], [*labels, 0])
    assert changed(before, after) <= ONE_ROW


def test_large_integers_of_a_list_stay_apart() -> None:
    rows = [[2**60 + i] for i in range(200)]
    clf = DPAClassifier(GaussianNB(), 50, classes=[0, 1]).fit(rows, [0, 1] * 100)
    assert (clf.partition_sizes_ > 0).sum() > 40


def test_members_behind_a_scaler_refuse_missing_values_before_they_fail() -> None:
    holes = X.copy()
    holes[5, 5] = np.nan
    clf = DPAClassifier(make_pipeline(StandardScaler(), SVC()), 5, classes=range(10))
    with pytest.raises(InvalidRowsError, match="NaN or infinity in row 5"):
        clf.fit(holes, y)


def test_more_classes_than_a_vote_can_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="40000 classes"):
        DPAClassifier(GaussianNB(), 2, classes=range(40_000)).fit(X, y)


@pytest.mark.parametrize("cell", ["unknown", 0, None], ids=repr)
def test_closed_form_members_read_dates_by_their_own_partition(cell: Any) -> None:
    frame = pd.DataFrame(X[:600]).rename(columns=str)
    moments = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(600), unit="ns")
    frame["when"] = pd.Series(list(moments), dtype=object)
    frame.loc[::2, "when"] = 0  # a member with a moment among its rows abstains
    clf = DPAClassifier(RidgeClassifier(), 100, classes=range(10))
    before = DPAClassifier(**clf.get_params(deep=False)).fit(frame, y[:600])
    assert 90 < len(before.failures_) <= 100
    row = frame.iloc[[0]].copy()
    row["when"] = pd.Series([cell], dtype=object, index=row.index)
    if cell is None:
        clf.set_params(invalid_rows="drop")
    after = clf.fit(pd.concat([frame, row], ignore_index=True), np.append(y[:600], 0))
    assert changed(before, after) <= ONE_ROW


@pytest.mark.parametrize(
    "mapped",
    [lambda A: A, lambda A: np.array(np.asarray(A).tolist())],
    ids=["as they are", "joint type of a partition"],
)
def test_what_a_users_own_map_makes_of_one_partition_leaves_the_others_alone(mapped: Any) -> None:
    days = pd.date_range("2020-01-01", periods=400)
    frame = pd.DataFrame({"a": days, "b": days[::-1]})
    labels = np.arange(400) % 2
    member = make_pipeline(OneHotEncoder(handle_unknown="ignore"), MultinomialNB())
    clf = DPAClassifier(member, 20, classes=[0, 1], features=FunctionTransformer(mapped))
    before = DPAClassifier(**clf.get_params(deep=False)).fit(frame, labels)
    strange = pd.concat([frame, pd.DataFrame({"a": ["x"], "b": ["x"]})], ignore_index=True)
    after = clf.fit(strange, np.append(labels, 0))
    assert changed(before, after) <= ONE_ROW


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32, np.bool_])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.coo_array], ids=["csr", "coo"])
def test_entries_of_one_place_add_up_by_value_in_every_type(make: Any, kind: Any) -> None:
    rng = np.random.default_rng(2)
    rows, columns = np.repeat(np.arange(400), 6), rng.integers(0, 4, 2400)
    data = rng.integers(100, 250, 2400).astype(kind)
    if kind is np.float32:
        data = rng.random(2400).astype(kind)
    place = (rows, columns)
    if make is sparse.csr_array:
        place = (columns, np.arange(0, 2401, 6))
        matrices = [make((d, *place), shape=(400, 4)) for d in (data, data.astype(np.float64))]
    else:
        matrices = [make((d, place), shape=(400, 4)) for d in (data, data.astype(np.float64))]
    labels = rng.integers(0, 2, 400)
    digests = {
        tuple(DPAClassifier(MultinomialNB(), 20, classes=[0, 1]).fit(m, labels).ensemble_.digests())
        for m in matrices
    }
    assert len(digests) == 1


@pytest.mark.parametrize("column", ["price", "kind", "group"])
def test_the_scale_of_a_decimal_column_is_no_part_of_its_cells(tmp_path: Any, column: str) -> None:
    numbers = np.random.default_rng(3).integers(0, 10**17, 500)
    values: dict[str, Any] = {
        "price": [Decimal(int(number)).scaleb(-9) for number in numbers],
        "kind": [Decimal(int(number) % 2) for number in numbers],
        "group": [Decimal(int(number) % 40) for number in numbers],
    }
    schema = Schema(label="kind", classes=("0", "1"), groups="group")
    read = []
    for scale in (0, 1):
        table = pa.table(
            {
                name: pa.array(cells, pa.decimal128(30, 9 + scale if name == column else 9))
                for name, cells in values.items()
            }
        )
        path = tmp_path / f"{scale}.parquet"
        pq.write_table(table, path)
        rows = read_table(path, schema)
        read.append((rows.X.tobytes(), list(rows.labels), list(rows.groups)))
    assert read[0] == read[1]
    assert set(read[0][1]) == {0, 1}


def test_a_weight_cannot_move_the_rows_of_sorted_partitions() -> None:
    clf = DPAClassifier(
        GaussianNB(), 20, partitioner="sorted", classes=range(10), invalid_rows="drop"
    )
    weights = np.ones(len(y))
    weights[3] = np.nan
    with pytest.raises(GuaranteeError, match=r"is nan in row 3.*cannot be dropped"):
        clf.fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("cell", ["many", None, float("inf"), pd.Timestamp("2020-01-01")], ids=repr)
@pytest.mark.parametrize(
    "container", [pd.DataFrame, list, object_array], ids=["frame", "list", "array"]
)
def test_a_row_that_a_fixed_map_cannot_take_is_left_out_alone(cell: Any, container: Any) -> None:
    rows = X[:600].astype(object)
    poisoned = np.concatenate([rows, rows[:1]])
    poisoned[-1, 7] = cell
    clf = DPAClassifier(
        RidgeClassifier(),
        50,
        classes=range(10),
        features=make_pipeline(FixedScale(scale=16.0), Deskew()),
        invalid_rows="drop",
    )
    before = DPAClassifier(**clf.get_params(deep=False)).fit(container(rows.tolist()), y[:600])
    after = clf.fit(container(poisoned.tolist()), np.append(y[:600], 0))
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    with pytest.raises(InvalidRowsError, match="not a number, in row 600"):
        after.set_params(invalid_rows="raise").fit(pd.DataFrame(poisoned), np.append(y[:600], 0))


@pytest.mark.parametrize("cell", [None, 5, float("nan"), b"spam"], ids=repr)
def test_a_row_without_a_text_is_left_out_alone(cell: Any) -> None:
    texts: list[Any] = [f"offer {i} of {i % 7} pills" for i in range(300)]
    clf = DPAClassifier(
        RidgeClassifier(),
        20,
        classes=[0, 1],
        features=HashedNGrams(n_features=256),
        invalid_rows="drop",
    )
    labels = [i % 2 for i in range(300)]
    before = DPAClassifier(**clf.get_params(deep=False)).fit(texts, labels)
    after = clf.fit([*texts, cell], [*labels, 0])
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    with pytest.raises(InvalidRowsError, match="not text in row 300"):
        after.set_params(invalid_rows="raise").fit([*texts, cell], [*labels, 0])
