"""`update` equals `fit` from scratch, member by member and bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, UnknownLabelError

from .checks import assert_same_members
from .data import data
from .registry import CASES, Case

DIGITS = data("digits")


def ensemble(estimator: Any = None, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator or GaussianNB(), 20, classes=range(10), **parameters)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_adding_and_removing_rows_equals_fit(case: Case) -> None:
    X, y = case.data.X, case.data.y
    old, new, gone = slice(0, -9), slice(-9, None), slice(40, 47)
    updated = (
        case.make().fit(X[old], y[old]).update(add=(X[new], y[new]), remove=(X[gone], y[gone]))
    )
    kept = np.delete(np.arange(len(y)), np.arange(len(y))[gone])
    assert_same_members(case.make().fit(X[kept], y[kept]), updated, case.data.X_test)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_relabelling_rows_equals_fit(case: Case) -> None:
    X, y, which = case.data.X, case.data.y, [3, 50, 51]
    flipped = y.copy()
    flipped[which] = (y[which] + 1) % len(case.data.classes)
    new, old = (X[which], flipped[which]), (X[which], y[which])
    updated = case.make().fit(X, y).update(add=new, remove=old)
    assert_same_members(case.make().fit(X, flipped), updated, case.data.X_test)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**31 - 1))
def test_any_sequence_of_updates_equals_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (300, 3)).astype(float)  # few distinct rows: many copies
    y = rng.integers(0, 10, 300)
    model = ensemble().fit(X[:200], y[:200])
    kept = list(range(200))
    for start in range(200, 300, 25):
        gone = rng.choice(kept, 20, replace=False)
        model.update(add=(X[start : start + 25], y[start : start + 25]), remove=(X[gone], y[gone]))
        kept = [row for row in kept if row not in set(gone)] + list(range(start, start + 25))
    assert_same_members(ensemble().fit(X[kept], y[kept]), model, DIGITS.X_test[:, :3])


def test_only_touched_partitions_train_again() -> None:
    model = ensemble().fit(DIGITS.X, DIGITS.y)
    before = list(model.ensemble_.members)
    model.update(remove=(DIGITS.X[7:8], DIGITS.y[7:8]))
    kept = [old is new for old, new in zip(before, model.ensemble_.members, strict=True)]
    assert sum(kept) == 19
    assert not kept[int(model.partitioner_.assign(DIGITS.X[7:8])[0])]


def test_removing_one_copy_leaves_the_others() -> None:
    X, y = np.repeat(DIGITS.X[:100], 3, axis=0), np.repeat(DIGITS.y[:100], 3)
    updated = ensemble().fit(X, y).update(remove=(X[:1], y[:1]))
    assert updated.partition_sizes_.sum() == 299
    assert_same_members(ensemble().fit(X[1:], y[1:]), updated, DIGITS.X_test)


def test_added_rows_in_another_dtype_equal_fit() -> None:
    whole, half = DIGITS.X.astype(np.uint8), DIGITS.X[:5] + 0.5
    updated = ensemble(KNeighborsClassifier(1)).fit(whole, DIGITS.y)
    updated.update(add=(half, DIGITS.y[:5]))
    both = np.concatenate([DIGITS.X, half]), np.append(DIGITS.y, DIGITS.y[:5])
    assert_same_members(ensemble(KNeighborsClassifier(1)).fit(*both), updated, DIGITS.X_test)


@pytest.mark.parametrize("container", [sparse.csr_matrix, pd.DataFrame], ids=["sparse", "frame"])
def test_updates_work_in_every_container(container: Any) -> None:
    X, y = DIGITS.X, DIGITS.y
    model = ensemble(DecisionTreeClassifier()).fit(container(X[:-5]), y[:-5])
    model.update(add=(container(X[-5:]), y[-5:]), remove=(container(X[:3]), y[:3]))
    scratch = ensemble(DecisionTreeClassifier()).fit(container(X[3:]), y[3:])
    assert_same_members(scratch, model, container(DIGITS.X_test))


def test_updates_work_in_polars_frames() -> None:
    pl = pytest.importorskip("polars")
    names = [f"pixel{i}" for i in range(DIGITS.X.shape[1])]

    def frame(X: Any) -> Any:
        return pl.DataFrame(X, schema=names)

    X, y = DIGITS.X, DIGITS.y
    model = ensemble(DecisionTreeClassifier()).fit(frame(X[:-5]), y[:-5])
    model.update(add=(frame(X[-5:]), y[-5:]), remove=(frame(X[:3]), y[:3]))
    scratch = ensemble(DecisionTreeClassifier()).fit(frame(X[3:]), y[3:])
    assert_same_members(scratch, model, frame(DIGITS.X_test))


def test_weights_and_groups_are_part_of_a_row() -> None:
    X, y = DIGITS.X[:400], DIGITS.y[:400]
    groups, weight = np.arange(400) % 37, np.linspace(0.5, 2, 400)
    model = ensemble(partitioner="group").fit(X[:390], y[:390], groups[:390], weight[:390])
    model.update(
        add=(X[390:], y[390:], groups[390:], weight[390:]),
        remove={"X": X[:2], "y": y[:2], "groups": groups[:2], "sample_weight": weight[:2]},
    )
    scratch = ensemble(partitioner="group").fit(X[2:], y[2:], groups[2:], weight[2:])
    assert_same_members(scratch, model, DIGITS.X_test)
    with pytest.raises(InvalidRowsError, match="not in the training set"):
        model.update(remove=(X[5:6], y[5:6], groups[5:6], [9.0]))


def test_removing_another_contributors_row_is_refused() -> None:
    """The same sample and label by someone whose rows are elsewhere is another row."""
    X, y = DIGITS.X[:300], DIGITS.y[:300]
    groups = np.arange(300) % 50
    model = ensemble(partitioner="group").fit(X, y, groups=groups)
    places = model.partitioner_.assign(X, groups=groups)
    foreign = groups[[int(np.argmax(places != places[0]))]]
    with pytest.raises(InvalidRowsError, match="not in the training set"):
        model.update(remove=(X[:1], y[:1], foreign))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ({"remove": (DIGITS.X[:1] + 1, DIGITS.y[:1])}, InvalidRowsError, "row 0 of `remove`"),
        ({"remove": (DIGITS.X[[0, 0]], DIGITS.y[[0, 0]])}, InvalidRowsError, "not as often"),
        ({"remove": (DIGITS.X[:1], DIGITS.y[:1] + 1)}, InvalidRowsError, "not in the training set"),
        ({"add": (DIGITS.X[:1], [77])}, UnknownLabelError, "77"),
        ({"add": (DIGITS.X[:1, :9], [1])}, ValueError, "features"),
        ({"add": (DIGITS.X[:1],)}, InvalidInputError, "must be a tuple"),
        ({}, InvalidInputError, "rows to add"),
    ],
)
def test_a_refused_update_leaves_the_model_as_it_was(
    rows: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = ensemble().fit(DIGITS.X, DIGITS.y)
    before = model.ensemble_.digests()
    with pytest.raises(error, match=message):
        model.update(**rows)
    assert model.ensemble_.digests() == before
    assert model.partition_sizes_.sum() == len(DIGITS.y)


def test_overwriting_the_callers_array_after_fit_is_noticed_by_an_update() -> None:
    X = DIGITS.X.copy()
    model = ensemble(KNeighborsClassifier(1)).fit(X, DIGITS.y)
    X[:] = 0
    with pytest.raises(InvalidRowsError, match="changed in place"):
        model.update(remove=(DIGITS.X[:1], DIGITS.y[:1]))


def test_a_relabelling_under_learned_features_equals_fit_bit_for_bit() -> None:
    """The map of a few rows alone may round differently from the map of all of them."""
    images = data("images")
    flipped = images.y.copy()
    flipped[:2] = (flipped[:2] + 1) % 10

    def model() -> SSDPAClassifier:
        return SSDPAClassifier(KNeighborsClassifier(1), PCA(40), 50, classes=range(10))

    updated = (
        model()
        .fit(images.X, images.y)
        .update(add=(images.X[:2], flipped[:2]), remove=(images.X[:2], images.y[:2]))
    )
    assert_same_members(model().fit(images.X, flipped), updated, images.X_test)
