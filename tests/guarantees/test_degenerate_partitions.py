"""Empty, one row, one class, a learner that raises: each is a function of that partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from poisonproof import DPAClassifier
from poisonproof.exceptions import InvalidInputError, MemberWarning
from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
)

from .checks import assert_only_touched_change, assert_same_members
from .data import data
from .learners import FussyClassifier

DIGITS = data("digits")


def ensemble(estimator: Any, k: int = 20, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator, k, classes=range(10), **parameters)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_learner_that_raises_on_one_partition_leaves_the_others_alone(n_jobs: int) -> None:
    row = DIGITS.X[:1].copy()
    row[0, 0] = 1000
    clean = ensemble(FussyClassifier()).fit(DIGITS.X, DIGITS.y)
    with pytest.warns(MemberWarning, match="1000"):
        after = ensemble(FussyClassifier(), n_jobs=n_jobs).fit(
            np.concatenate([DIGITS.X, row]), np.append(DIGITS.y, 0)
        )
    index = int(after.partitioner_.assign(row)[0])
    assert list(after.failures_) == [index]
    assert "too large" in after.failures_[index]
    assert (after.votes(DIGITS.X_test)[:, index] == -1).all()
    assert_only_touched_change(clean, after, DIGITS.X_test, [index])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_member_that_failed_has_the_same_bits_in_every_run(n_jobs: int) -> None:
    """Its error may quote an address in memory; that is no part of the member."""
    row = DIGITS.X[:1].copy()
    row[0, 0] = 1000
    poisoned = np.concatenate([DIGITS.X, row]), np.append(DIGITS.y, 0)
    with pytest.warns(MemberWarning):
        one = ensemble(FussyClassifier()).fit(*poisoned)
    with pytest.warns(MemberWarning):
        two = ensemble(FussyClassifier(), n_jobs=n_jobs).fit(*poisoned)
    assert_same_members(one, two, DIGITS.X_test)


def test_if_every_member_fails_fit_says_why() -> None:
    with pytest.raises(InvalidInputError, match="no member could be trained; ValueError: 16"):
        ensemble(FussyClassifier(limit=1)).fit(DIGITS.X, DIGITS.y)


@pytest.mark.parametrize("estimator", [SVC(), GaussianNB(), LogisticRegression()], ids=str)
def test_a_partition_of_one_class_votes_for_it(estimator: Any) -> None:
    X, y = DIGITS.X, DIGITS.y.copy()
    assignment = ensemble(estimator).fit(X, y).partitioner_.assign(X)
    y[assignment == 4] = 7
    fitted = ensemble(estimator).fit(X, y)
    assert (fitted.votes(DIGITS.X_test)[:, 4] == 7).all()
    assert not fitted.failures_


def test_more_partitions_than_rows_are_allowed_and_said() -> None:
    with pytest.warns(MemberWarning, match="n_partitions=50 is too large for these training rows"):
        fitted = ensemble(GaussianNB(), 50).fit(DIGITS.X[:30], DIGITS.y[:30])
    votes = fitted.votes(DIGITS.X_test)
    assert (votes[:, fitted.partition_sizes_ == 0] == -1).all()
    assert (votes[:, fitted.partition_sizes_ > 0] >= 0).any()
    certificates = fitted.certify(DIGITS.X_test)
    assert certificates.counts.sum(axis=1).max() <= (fitted.partition_sizes_ > 0).sum()


def test_one_partition_holds_everything_and_certifies_nothing() -> None:
    fitted = ensemble(GaussianNB(), 1).fit(DIGITS.X, DIGITS.y)
    plain = GaussianNB().fit(DIGITS.X, DIGITS.y)
    assert (fitted.predict(DIGITS.X_test) == plain.predict(DIGITS.X_test)).mean() > 0.98
    assert fitted.certify(DIGITS.X_test).radius.max() == 0


class _ChokesOn(GaussianNB):
    """Votes, except on rows that hold the value 99."""

    def predict(self, X: Any) -> Any:
        if (X == 99).any() and self.theta_[0, 20] > 6:
            raise ValueError("99 is not for me")
        return super().predict(X)


def test_a_member_that_cannot_vote_on_a_row_abstains_there_and_says_so() -> None:
    fitted = ensemble(_ChokesOn()).fit(DIGITS.X, DIGITS.y)
    odd = DIGITS.X_test.copy()
    odd[0, 0] = 99
    choked = np.array([member.estimator.theta_[0, 20] > 6 for member in fitted.ensemble_.members])
    assert 0 < choked.sum() < 20
    with pytest.warns(MemberWarning, match="99 is not for me"):
        votes = fitted.votes(odd)
    assert (votes[0, choked] == -1).all()
    assert np.array_equal(votes[1:], fitted.votes(DIGITS.X_test)[1:])
    assert (votes[:, ~choked] >= 0).all()


def test_if_no_member_can_vote_the_smallest_label_wins_with_radius_zero() -> None:
    fitted = ensemble(GaussianNB()).fit(DIGITS.X, DIGITS.y)
    broken = clone(fitted)
    broken.__dict__.update(fitted.__dict__)
    for member in broken.ensemble_.members:
        del member.estimator.theta_
    with pytest.warns(MemberWarning, match="20 of 20 members abstain"):
        certificates = broken.certify(DIGITS.X_test)
    assert (certificates.labels == 0).all()
    assert (certificates.radius == 0).all()


@pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning")
@pytest.mark.parametrize(
    "member",
    [
        SVC(),
        KernelRidgeClassifier(),
        KernelRidgeClassifier("cosine"),
        RidgeClassifier(),
        ScaledKernelClassifier(),
    ],
    ids=lambda member: type(member).__name__,
)
def test_huge_values_in_one_partition_reach_no_other(member: Any) -> None:
    row = np.full((1, 64), 1e308)
    clean = ensemble(member).fit(DIGITS.X, DIGITS.y)
    after = ensemble(member).fit(np.concatenate([DIGITS.X, row]), np.append(DIGITS.y, 3))
    assert_only_touched_change(clean, after, DIGITS.X_test, after.partitioner_.assign(row))
