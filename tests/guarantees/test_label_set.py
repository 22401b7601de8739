"""The label set is declared, never found: rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.certificates import OBSERVED_LABELS
from poisonproof.exceptions import GuaranteeError, UnknownLabelError

from .checks import assert_only_touched_change, changed_members
from .data import data

DIGITS = data("digits")


def ensemble(estimator: Any = None, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator or DecisionTreeClassifier(), 20, **parameters)


@pytest.mark.parametrize(
    "estimator", [DecisionTreeClassifier(), GaussianNB(), LogisticRegression(max_iter=9)], ids=str
)
def test_deleting_the_last_row_of_a_class_changes_one_member(estimator: Any) -> None:
    last = int(np.flatnonzero(DIGITS.y == 3)[0])
    keep = (DIGITS.y != 3) | (np.arange(len(DIGITS.y)) == last)
    X, y, position = DIGITS.X[keep], DIGITS.y[keep], int(keep[:last].sum())
    declared = ensemble(estimator, classes=range(10))
    before = clone(declared).fit(X, y)
    after = clone(declared).fit(np.delete(X, position, axis=0), np.delete(y, position))
    touched = before.partitioner_.assign(X[position : position + 1])
    assert_only_touched_change(before, after, DIGITS.X_test, touched)
    assert after.classes_.tolist() == list(range(10))


def test_a_declared_class_without_rows_is_certified_like_the_others() -> None:
    known = DIGITS.y != 0
    fitted = ensemble(classes=range(10)).fit(DIGITS.X[known], DIGITS.y[known])
    certificates = fitted.certify(DIGITS.X_test)
    assert certificates.counts.shape == (100, 10)
    assert not certificates.counts[:, 0].any()


def test_undeclared_classes_are_an_assumption_of_the_certificate() -> None:
    fitted = ensemble().fit(DIGITS.X, DIGITS.y)
    assert OBSERVED_LABELS in fitted.certify(DIGITS.X_test).threat.assumptions
    with pytest.raises(GuaranteeError, match="classes="):
        fitted.certify(DIGITS.X_test, require_declared=True)


def test_declared_classes_carry_no_assumption() -> None:
    fitted = ensemble(classes=range(10)).fit(DIGITS.X, DIGITS.y)
    assert fitted.certify(DIGITS.X_test, require_declared=True).threat.assumptions == ()


def test_declared_classes_survive_clone_unchanged() -> None:
    for declared in (range(10), list(range(10)), tuple("abc"), np.arange(3)):
        assert clone(ensemble(classes=declared)).classes is not None
        assert list(clone(ensemble(classes=declared)).classes) == list(declared)


def test_the_order_in_which_classes_are_declared_changes_nothing() -> None:
    one = ensemble(classes=range(10)).fit(DIGITS.X, DIGITS.y)
    two = ensemble(classes=list(reversed(range(10)))).fit(DIGITS.X, DIGITS.y)
    assert not changed_members(one, two, DIGITS.X_test)


@pytest.mark.parametrize("label", [77, -1, 0.5, np.nan, "spam", None], ids=repr)
@pytest.mark.parametrize(
    "make", [list, lambda y: np.array(y, dtype=object)], ids=["list", "object"]
)
def test_a_row_with_an_unknown_label_is_rejected_as_a_row(label: Any, make: Any) -> None:
    X = np.concatenate([DIGITS.X, DIGITS.X[:1]])
    y = make([*DIGITS.y.tolist(), label])
    with pytest.raises(UnknownLabelError, match=f"row {len(DIGITS.y)}"):
        ensemble(classes=range(10)).fit(X, y)
    dropped = ensemble(classes=range(10), invalid_rows="drop").fit(X, y)
    assert dropped.n_dropped_ == 1
    clean = ensemble(classes=range(10)).fit(DIGITS.X, DIGITS.y)
    assert not changed_members(clean, dropped, DIGITS.X_test)


@pytest.mark.parametrize("label", ["a longer label than all others", 3, None], ids=repr)
def test_text_labels_reject_strangers_alone(label: Any) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"])
    y = names[DIGITS.y]
    clean = ensemble(classes=names.tolist()).fit(DIGITS.X, y)
    X = np.concatenate([DIGITS.X, DIGITS.X[:1]])
    poisoned = np.array([*y.tolist(), label], dtype=object)
    dropped = ensemble(classes=names.tolist(), invalid_rows="drop").fit(X, poisoned)
    assert dropped.n_dropped_ == 1
    assert not changed_members(clean, dropped, DIGITS.X_test)


def test_dropping_by_label_cannot_reach_learned_features() -> None:
    """Labels are the attacker's, so a label must not decide whether a sample counts."""
    y = DIGITS.y.copy()
    y[5] = 99
    model = SSDPAClassifier(DecisionTreeClassifier(), None, 20, classes=range(10))
    with pytest.raises((GuaranteeError, UnknownLabelError), match="99"):
        clone(model).set_params(invalid_rows="drop").fit(DIGITS.X, y)


def test_two_classes_and_a_vote_for_the_second_are_certified() -> None:
    y = DIGITS.y > 4
    fitted = ensemble(classes=[False, True]).fit(DIGITS.X, y)
    certificates = fitted.certify(DIGITS.X_test)
    assert certificates.labels.dtype == bool
    assert certificates.radius.max() > 3
