"""A row that cannot be read, mapped, weighed or trained on is the matter of its own partition."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder

from poisonproof import DPAClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.networks import TorchLearner

pytestmark = pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:400], y[:400]
K = 20


def dpa(member: Any = None, **parameters: Any) -> Any:
    settings = {"classes": range(10), "invalid_rows": "drop", **parameters}
    return DPAClassifier(member or GaussianNB(), K, **settings)


def changed(before: Any, after: Any) -> int:
    return int(np.sum(np.array(before.ensemble_.digests()) != after.ensemble_.digests()))


def with_cell(cell: Any) -> pd.DataFrame:
    frame = pd.DataFrame(np.concatenate([X, X[:1]]).astype(object)).rename(columns=str)
    frame.iat[400, 3] = cell
    return frame


UNREADABLE = [1j, [1], {"a": 1}, uuid.UUID(int=5), pd.Period("2020"), Decimal("1e500")]


@pytest.mark.parametrize("cell", UNREADABLE, ids=str)
def test_a_row_without_a_canonical_form_is_left_out_alone(cell: Any) -> None:
    before = dpa().fit(with_cell(0).iloc[:400], y)
    after = dpa().fit(with_cell(cell), np.append(y, 0))
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    with pytest.raises(InvalidRowsError):
        dpa(invalid_rows="raise").fit(with_cell(cell), np.append(y, 0))


@pytest.mark.parametrize("cell", [1j, [1], np.zeros(2), np.longdouble("0.1")], ids=str)
def test_a_row_of_a_list_without_a_canonical_form_is_left_out_alone(cell: Any) -> None:
    strange = [*X[0].tolist()[:-1], cell]
    before = dpa().fit(X.tolist(), y)
    after = dpa().fit([*X.tolist(), strange], np.append(y, 0))
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    assert not dpa().fit(X, y).update(add=([strange], [0])).receipt_.retrained
    with pytest.raises(InvalidRowsError, match=r"^Row 400\b"):
        dpa(invalid_rows="raise").fit([*X.tolist(), strange], np.append(y, 0))


def _raising(*methods: str, base: type = object) -> Any:
    """Return an object whose methods raise."""

    def refuse(self: Any, *args: Any) -> Any:
        raise RuntimeError("not for you")

    return type("Raising", (base,), dict.fromkeys(methods, refuse))()


_COUNT = ("__repr__", "__eq__", "__hash__", "__len__", "__array__", "__float__", "__int__")
HOSTILE = {
    "repr": _raising("__repr__"),
    "eq and hash": _raising("__eq__", "__hash__"),
    "len": _raising("__len__", "__getitem__"),
    "array": _raising("__array__"),
    "class": _raising("__getattribute__"),
    "text": _raising("__str__", "__repr__", "__len__", "encode", base=str),
    "integer": _raising(*_COUNT, base=int),
    "list": _raising(*_COUNT, "__iter__", base=list),
    "everything": _raising(*_COUNT, "__iter__", "__str__", "__format__", "__bool__"),
}
ROWS = {
    **{f"cell {name}": [*X[0].tolist()[:-1], cell] for name, cell in HOSTILE.items()},
    **{f"row {name}": row for name, row in HOSTILE.items()},
    "short": [1.0],
    "long": [*X[0].tolist(), 1.0],
    "empty": [],
    "nested": [[cell] for cell in X[0].tolist()],
    "a list in a cell": [*X[0].tolist()[:-1], [1, 2]],
    "beyond float64": [*X[0].tolist()[:-1], 10**5000],
    "nothing": None,
    "a number": 3,
    "a text": "six",
    "an image": np.zeros((8, 8)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_a_row_that_is_none_is_left_out_alone(name: str, first: bool) -> None:
    place = 0 if first else 400
    rows, labels = X.tolist(), y.tolist()
    before = dpa().fit(rows, labels)
    rows.insert(place, ROWS[name])
    labels.insert(place, 0)
    after = dpa().fit(rows, labels)
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    assert not dpa().fit(X, y).update(add=([X[0].tolist(), ROWS[name]], [0, 0])).failures_
    with pytest.raises(InvalidRowsError, match=f"^Row {place} of X"):
        dpa(invalid_rows="raise").fit(rows, labels)
    with pytest.raises(InvalidRowsError, match=r"^Row 1 of X"):
        before.predict([X[0].tolist(), ROWS[name]])


def test_which_rows_have_another_length_is_not_for_a_few_rows_to_say() -> None:
    mixed = [*X[:200].tolist(), *X[200:390, :60].tolist()]
    with pytest.raises(InvalidRowsError, match="200 rows have 64, 190 have another number"):
        dpa().fit(mixed, y[:390])


@pytest.mark.parametrize("name", HOSTILE)
def test_an_object_that_raises_as_label_weight_or_group_leaves_out_its_own_row(name: str) -> None:
    odd = HOSTILE[name]
    rows, labels = np.concatenate([X, X[:1]]), np.append(y, 0)
    groups, ones = list(range(400)), [1.0] * 400
    labelled = dpa().fit(rows, [*y.tolist(), odd])
    weighed = dpa().fit(rows, labels, sample_weight=[*ones, odd])
    grouped = dpa(partitioner="group").fit(rows, labels, groups=[*groups, odd])
    assert (labelled.n_dropped_, weighed.n_dropped_, grouped.n_dropped_) == (1, 1, 1)
    assert changed(dpa().fit(X, y), labelled) == 0
    with pytest.raises(InvalidInputError, match="row 400 has the label"):
        dpa(invalid_rows="raise").fit(rows, [*y.tolist(), odd])


@pytest.mark.parametrize("group", [1j, {}, uuid.UUID(int=5), [], None], ids=str)
def test_a_group_that_is_no_identity_leaves_out_its_own_row(group: Any) -> None:
    groups = [i % 50 for i in range(400)]
    before = dpa(partitioner="group").fit(X, y, groups=groups)
    rows, labels = np.concatenate([X, X[:1]]), np.append(y, 0)
    after = dpa(partitioner="group").fit(rows, labels, groups=[*groups, group])
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0


@pytest.mark.parametrize("weight", ["x", 10**400, None, 1j, float("nan")], ids=repr)
def test_a_weight_that_is_no_number_leaves_out_its_own_row(weight: Any) -> None:
    before = dpa().fit(X, y, sample_weight=[1.0] * 400)
    rows, labels = np.concatenate([X, X[:1]]), np.append(y, 0)
    after = dpa().fit(rows, labels, sample_weight=[*[1.0] * 400, weight])
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0
    with pytest.raises(InvalidInputError):
        dpa(invalid_rows="raise").fit(rows, labels, sample_weight=[*[1.0] * 400, weight])


@pytest.mark.parametrize("label", [Decimal("sNaN"), ([1],), [1], 1j], ids=repr)
def test_a_label_that_nothing_can_be_compared_with_leaves_out_its_own_row(label: Any) -> None:
    after = dpa().fit(np.concatenate([X, X[:1]]), [*y.tolist(), label])
    assert after.n_dropped_ == 1
    assert changed(dpa().fit(X, y), after) == 0


@pytest.mark.parametrize("series", [pl.Series, lambda v: pd.Series(v, dtype="category")])
def test_a_missing_label_does_not_round_the_labels_of_others(series: Any) -> None:
    labels = [2**53 + int(label) for label in y]
    declared = [2**53 + i for i in range(10)]
    before = dpa(classes=declared).fit(X, series(labels))
    after = dpa(classes=declared).fit(np.concatenate([X, X[:1]]), series([*labels, None]))
    assert after.n_dropped_ == 1
    assert changed(before, after) == 0


def test_entries_of_one_place_add_up_for_members_as_for_digests() -> None:
    def rows(values: list[int], columns: list[int]) -> Any:
        start = sparse.csr_array(([*values, 3], [*columns, 1], [0, len(values) + 1]), shape=(1, 3))
        rest = sparse.csr_array(np.arange(180).reshape(60, 3) % 7 + 1)
        joined = sparse.vstack([start, rest], format="csr")
        data = np.concatenate([np.array([*values, 3], dtype=np.int64), rest.data])
        return sparse.csr_array((data, joined.indices, joined.indptr), shape=joined.shape)

    labels = np.arange(61) % 2
    one = DPAClassifier(MultinomialNB(), 1, classes=[0, 1]).fit(rows([1], [0]), labels)
    two = DPAClassifier(MultinomialNB(), 1, classes=[0, 1])
    two.fit(rows([2**60 + 1, -(2**60)], [0, 0]), labels)
    assert one.partition_digests_ == two.partition_digests_
    assert changed(one, two) == 0


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_a_text_silences_the_network_of_its_own_partition(network: str) -> None:
    member = TorchLearner(network, epochs=1)
    before = dpa(member).fit(with_cell(0).iloc[:400], y)
    after = dpa(member).fit(with_cell("many"), np.append(y, 0))
    assert list(after.failures_.values()) != []
    assert changed(before, after) == 1


@pytest.mark.parametrize("features", [Normalizer(), FunctionTransformer(validate=True)], ids=str)
def test_a_row_on_which_a_users_map_raises_silences_its_own_member(features: Any) -> None:
    before = dpa(features=features).fit(with_cell(0).iloc[:400], y)
    after = dpa(features=features).fit(with_cell("many"), np.append(y, 0))
    (reason,) = after.failures_.values()
    assert "map of samples" in reason
    assert changed(before, after) == 1


def test_a_map_that_returns_another_kind_for_one_partition_is_refused() -> None:
    def mapped(rows: Any) -> Any:
        return sparse.csr_array(np.asarray(rows)) if np.max(rows) < 1e5 else rows

    clf = dpa(LogisticRegression(max_iter=50), features=FunctionTransformer(mapped)).fit(X, y)
    poisoned = np.concatenate([X, np.full((1, 64), 1e6)])
    with pytest.raises(GuaranteeError, match="one kind of samples"):
        clf.fit(poisoned, np.append(y, 0))


def test_neighbours_leave_out_a_text_alone() -> None:
    votes = NeighborVoteClassifier(classes=range(10), invalid_rows="drop")
    before = votes.fit(X, y).certify(X[:50])
    after = votes.fit(with_cell("many"), np.append(y, 0)).certify(
        pd.DataFrame(X[:50]).rename(columns=str)
    )
    assert votes.n_dropped_ == 1
    assert np.array_equal(before.radius, after.radius)


def test_an_update_reads_columns_by_position_as_a_fit_does() -> None:
    frame = pd.DataFrame(X)
    added = pd.DataFrame(X[:1] + 1, columns=range(63, -1, -1))
    whole = pd.concat([frame, pd.DataFrame(X[:1] + 1)], ignore_index=True)
    updated = dpa().fit(frame, y).update(add=(added, [0]))
    assert changed(dpa().fit(whole, np.append(y, 0)), updated) == 0


def test_members_of_a_function_that_was_changed_are_trained_again(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "notebook"}
    exec("def mapped(rows): return rows", namespace)
    dpa(features=FunctionTransformer(namespace["mapped"])).fit_into(tmp_path / "model", X, y)
    exec("def mapped(rows): return (rows > 8) * 1.0", namespace)
    clf = dpa(features=FunctionTransformer(namespace["mapped"]))
    stored = clf.fit_into(tmp_path / "model", X, y, overwrite=True).ensemble_.digests()
    assert stored == clf.fit(X, y).ensemble_.digests()


def test_one_test_row_silences_no_member_on_others() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"a": draw.choice(list("abcd"), 1000), "b": draw.choice(list("xy"), 1000)})
    table["number"] = draw.random(1000)  # so that rows fall into all partitions
    labels = (table.a == "a").to_numpy().astype(int)
    table.loc[:5, "a"] = "rare"
    member = make_pipeline(
        ColumnTransformer([("one", OneHotEncoder(), ["a", "b"])]), MultinomialNB()
    )
    clf = dpa(member, classes=[0, 1]).fit(table, labels)
    ordinary = table.iloc[500:520]
    alone = clf.certify(ordinary)
    together = clf.certify(pd.concat([ordinary, table.iloc[:1]]))
    assert np.array_equal(together.radius[:20], alone.radius)
    assert together.counts[20].sum() < K
    unseen = pd.DataFrame({"a": ["new"], "b": ["x"], "number": [0.5]})
    refused = clf.certify(pd.concat([ordinary, unseen]))
    assert np.array_equal(refused.radius[:20], alone.radius)
    assert (refused.counts[20].sum(), refused.labels[20], refused.radius[20]) == (0, 0, 0)


def test_masks_and_mixed_label_sets_are_refused() -> None:
    with pytest.raises(InvalidRowsError, match="masked array"):
        dpa().fit(np.ma.masked_array(X, X > 15), y)
    with pytest.raises(InvalidInputError, match="mixes text and other labels"):
        dpa(classes=[0, "0"]).fit(X, y)
