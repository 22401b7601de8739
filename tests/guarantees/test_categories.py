"""Categories of a frame are declared: no row decides how another one's are seen."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from poisonproof import DPAClassifier, load
from poisonproof.certificates.threats import DECLARED_CATEGORIES
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.exceptions import InvalidInputError
from tests.guarantees.registry import FRAME_CASES, Case

from .checks import assert_only_touched_change, assert_same_members, changed_members

pytestmark = pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")

every_case = pytest.mark.parametrize("case", FRAME_CASES, ids=str)


@cache
def fitted(name: str) -> Any:
    case = next(case for case in FRAME_CASES if case.name == name)
    return case.make().fit(case.data.X, case.data.y)


def row(case: Case, **cells: Any) -> pd.DataFrame:
    """Return a training row with other cells, in the types that these cells have."""
    new = case.data.X[3:4].astype(object)
    for name, cell in cells.items():
        new[name] = pd.Series([cell], dtype=object, index=new.index)
    return new


def with_rows(case: Case, *new: pd.DataFrame) -> pd.DataFrame:
    """Append rows as pandas does it, and return to the declared categories, cell by cell."""
    X = pd.concat([case.data.X.astype(object), *new], ignore_index=True)
    for name in ("grade", "site"):
        kind = case.data.X[name].dtype
        X[name] = X[name].where(X[name].isin(kind.categories)).astype(kind)
    return X


POISON = {
    "a new category": {"grade": "excellent"},
    "a category of another type": {"grade": 3, "site": "high"},
    "a fraction among integers": {"site": 2.5},
    "a text among numbers": {"n2": "seventeen"},
    "a missing category": {"grade": None},
    "a huge number": {"n0": 1e300},
}


@every_case
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("label", [0, 1])
def test_a_row_of_other_categories_or_types_changes_one_member(
    case: Case, poison: str, label: int
) -> None:
    X = with_rows(case, row(case, **POISON[poison]))
    after = case.make().fit(X, np.append(case.data.y, label))
    touched = after.partitioner_.assign(X[-1:])
    assert_only_touched_change(fitted(case.name), after, case.data.X_test, touched)


@every_case
def test_a_row_with_another_label_is_left_out_alone(case: Case) -> None:
    X = with_rows(case, row(case))
    after = case.make(invalid_rows="drop").fit(X, [*case.data.y.tolist(), "spam"])
    assert after.n_dropped_ == 1
    assert_same_members(fitted(case.name), after, case.data.X_test)


@every_case
@pytest.mark.parametrize("attack", ["delete", "relabel", "duplicate", "reorder"])
def test_attacks_on_rows_change_members_of_touched_partitions_only(case: Case, attack: str) -> None:
    X, y, clean = case.data.X, case.data.y.copy(), fitted(case.name)
    hit = np.array([5, 44, 170])
    touched = [] if attack == "reorder" else clean.partitioner_.assign(X.iloc[hit])
    rows = {
        "delete": np.delete(np.arange(len(y)), hit),
        "duplicate": np.append(np.arange(len(y)), hit),
        "reorder": np.random.default_rng(0).permutation(len(y)),
    }.get(attack, np.arange(len(y)))
    if attack == "relabel":
        y[hit] = 1
    after = case.make().fit(X.iloc[rows], y[rows])
    assert_only_touched_change(clean, after, case.data.X_test, touched)
    assert bool(changed_members(clean, after, case.data.X_test)) == (attack != "reorder")


@every_case
def test_votes_do_not_depend_on_the_dtypes_of_the_rows_to_predict(case: Case) -> None:
    clean, asked = fitted(case.name), case.data.X_test
    expected = clean.votes(asked)
    others = {
        "objects": asked.astype(object),
        "categories taken from the rows": asked.astype(object).astype(
            {"grade": "category", "site": "category"}
        ),
        "numbers": asked.astype({"grade": object, "site": float}),
    }
    for name, frame in others.items():
        assert (clean.votes(frame) == expected).all(), name
    one_by_one = [clean.votes(others["objects"].iloc[[i]]) for i in range(20)]
    assert (np.concatenate(one_by_one) == expected[:20]).all()
    unknown, missing = others["objects"].copy(), others["objects"].copy()
    unknown.iloc[0, 6], missing.iloc[0, 6] = "excellent", None
    assert (clean.votes(unknown) == clean.votes(missing)).all()
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(InvalidInputError, match="Give a frame"),
    ):
        clean.votes(np.zeros((2, asked.shape[1])))


@every_case
def test_members_see_the_declared_categories(case: Case) -> None:
    one_hot = fitted(case.name).categories_
    assert one_hot[6] == (("high", "none", "low", "mid"), False)
    assert one_hot[7][0] == tuple(map(float, range(12)))
    certificates = fitted(case.name).certify(case.data.X_test)
    assert DECLARED_CATEGORIES in certificates.threat.assumptions
    # Another order of the same categories is another model.
    grade = case.data.X["grade"].cat.set_categories(["none", "low", "mid", "high"])
    again = case.make().fit(case.data.X.assign(grade=grade), case.data.y)
    assert again.categories_ != fitted(case.name).categories_
    assert model_fingerprint(again) != model_fingerprint(fitted(case.name))


@pytest.mark.usefixtures("self_check")
@every_case
def test_a_model_with_categories_is_stored_updated_and_checked(case: Case, tmp_path: Any) -> None:
    X, y, asked = case.data.X, case.data.y, case.data.X_test
    first = case.make().fit(X[:470], y[:470])
    first.save(tmp_path / "m", keep_data=True)
    loaded = load(tmp_path / "m")
    assert (loaded.votes(asked.astype(object)) == first.votes(asked)).all()
    loaded.update(add=(X[470:].astype(object), y[470:]))
    assert_same_members(fitted(case.name), loaded, asked)
    stored = case.make().fit_into(tmp_path / "n", X, y)
    assert stored.n_self_checked_ == 1
    assert_same_members(fitted(case.name), stored, asked)


def test_xgboost_is_given_labels_without_gaps() -> None:
    (case,) = [case for case in FRAME_CASES if case.name.startswith("xgboost")]
    model = fitted(case.name)
    held = [set(case.data.y[model.rows_.source.rows(i)]) for i in range(8)]
    assert {0, 2} in held  # a gap
    assert model.failures_ == {}
    names = np.array(["ham", "jam", "spam"])
    named = DPAClassifier(case.classifier.estimator, 8, classes=names)
    named.fit(case.data.X, names[case.data.y])
    assert (named.votes(case.data.X_test) == model.votes(case.data.X_test)).all()
    scores = named.certify(case.data.X_test).labels
    assert set(scores) <= set(names)
