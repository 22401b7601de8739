"""Classifiers of several kinds, one vote: equal weight, the same bits for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LinearRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import DPAClassifier
from poisonproof.evaluation import clean_accuracy, median_radius
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.committee import Committee, standardized

X, Y = load_digits(return_X_y=True)
KINDS = [("ridge", RidgeClassifier()), ("tree", ExtraTreeClassifier())]


@parametrize_with_checks([Committee(KINDS)])
def test_a_committee_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def test_no_classifier_is_louder_than_another() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((50, 10))
    np.testing.assert_allclose(standardized(1e6 * scores + 3), standardized(scores), atol=1e-9)
    assert np.array_equal(standardized(np.full((2, 3), 7.0)), np.zeros((2, 3)))


@pytest.mark.parametrize("n_classes", [2, 10, 43])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_standardized_scores_depend_on_nothing_beside_them(n_classes: int, dtype: Any) -> None:
    """Whoever else is asked, whatever else is asked, and however the numbers lie in memory."""
    scores = np.random.default_rng(0).standard_normal((200, 150, n_classes)).astype(dtype)
    found = standardized(scores)
    assert np.array_equal(found, standardized(np.asfortranarray(scores)))
    for member in (0, 77, 149):
        own = np.asfortranarray(scores[:, member])
        assert np.array_equal(found[:, member], standardized(own))
        alone = np.concatenate([standardized(own[row : row + 1]) for row in range(200)])
        assert np.array_equal(found[:, member], alone)


def test_a_row_gets_the_same_scores_alone() -> None:
    committee = Committee([("bayes", GaussianNB()), ("ridge", RidgeClassifier())]).fit(X, Y)
    assert not committee.classifiers_[0].predict_proba(X).flags.c_contiguous
    whole = standardized(committee.classifiers_[0].predict_proba(X))
    alone = [standardized(committee.classifiers_[0].predict_proba(row[None])) for row in X[:300]]
    assert np.array_equal(whole[:300], np.concatenate(alone))


def test_the_sum_of_standardized_decides() -> None:
    committee = Committee([("ridge", RidgeClassifier()), ("bayes", GaussianNB())]).fit(X, Y)
    ridge, bayes = RidgeClassifier().fit(X, Y), GaussianNB().fit(X, Y)
    total = standardized(ridge.decision_function(X)) + standardized(bayes.predict_proba(X))
    assert np.array_equal(committee.predict(X), total.argmax(axis=1))
    assert np.array_equal(committee.predict_proba(X).argmax(axis=1), total.argmax(axis=1))


def test_two_classes_with_one_score() -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    committee = Committee([("ridge", RidgeClassifier()), ("tree", DecisionTreeClassifier())])
    assert committee.fit(rows, labels).score(rows, labels) > 0.95


def test_classifiers_draw_from_streams_of_their_own() -> None:
    trees = [("one", ExtraTreeClassifier()), ("other", ExtraTreeClassifier())]
    first, second = Committee(trees).fit(X, Y).classifiers_
    assert first.tree_.threshold.tobytes() != second.tree_.threshold.tobytes()
    again, _ = Committee(trees).fit(X, Y).classifiers_
    assert first.tree_.threshold.tobytes() == again.tree_.threshold.tobytes()


def test_committees_that_see_different_columns_beat_their_parts() -> None:
    def half(columns: slice) -> Any:
        return make_pipeline(
            ColumnTransformer([("half", "passthrough", columns)]), ScaledKernelClassifier()
        )

    upper, lower = half(slice(0, 32)), half(slice(32, 64))

    def certificates(member: Any) -> Any:
        clf = DPAClassifier(member, 15, classes=range(10)).fit(X[:1200], Y[:1200])
        return clf.certify(X[1200:])

    alone = [certificates(member) for member in (upper, lower)]
    both = certificates(Committee([("upper", upper), ("lower", lower)]))
    assert both.n_members == 15
    for one in alone:
        assert clean_accuracy(both, Y[1200:]) > clean_accuracy(one, Y[1200:]) + 0.05
        assert median_radius(both, Y[1200:]) > median_radius(one, Y[1200:])


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize(
    ("classifiers", "says"),
    [
        ([], "list of"),
        ("both", "list of"),
        ([GaussianNB()], "list of"),
        ([("a", GaussianNB(), slice(3))], "list of"),
        ([("line", LinearRegression())], "'line' is a LinearRegression"),
        ([("nothing", None)], "'nothing' is a NoneType"),
    ],
)
def test_what_cannot_vote_together_is_refused(classifiers: Any, says: str, ensemble: bool) -> None:
    member = Committee(classifiers)
    with pytest.raises(InvalidInputError, match=says):
        (DPAClassifier(member, 5, classes=range(10)) if ensemble else member).fit(X, Y)
