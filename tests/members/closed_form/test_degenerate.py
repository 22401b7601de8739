"""Partitions that no learner likes have a member all the same."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
    restore_members,
)

from .partitions import LEARNERS, asked, blobs, cut, trained


@pytest.mark.parametrize("name", LEARNERS)
def test_empty_abstains_and_one_class_is_constant(name) -> None:
    X, y = blobs(40, 8)
    y[:12] = np.arange(12) % 10
    ids = np.full(40, 3)
    ids[12], ids[13:16] = 1, 2
    y[13:16] = 7
    members = trained(LEARNERS[name], cut(X, y, ids, 4))
    votes = asked(members, X)
    assert (votes[:, 0] == ABSTAIN).all()
    assert (votes[:, 1] == y[12]).all()
    assert (votes[:, 2] == 7).all()
    assert set(votes[:, 3]) <= set(range(10))
    assert members.failures() == {}


NOT_FINITE = [
    (name, value)
    for name, learner in LEARNERS.items()
    for value in (np.nan, np.inf)
    if not (np.isnan(value) and get_tags(learner).input_tags.allow_nan)
]


@pytest.mark.parametrize(("name", "value"), NOT_FINITE)
def test_a_row_that_is_not_finite_silences_its_member_only(name, value) -> None:
    X, y = blobs(60, 8)
    ids = np.arange(60) % 3
    clean = trained(LEARNERS[name], cut(X, y, ids, 3)).digests()
    X[4, 2] = value
    members = trained(LEARNERS[name], cut(X, y, ids, 3))
    assert list(members.failures()) == [1]
    assert "infinity" in members.failures()[1]
    assert (asked(members, X[:3])[:, 1] == ABSTAIN).all()
    assert [members.digests()[i] for i in (0, 2)] == [clean[i] for i in (0, 2)]
    assert restore_members(*members.export()).failures() == members.failures()


@pytest.mark.parametrize("name", LEARNERS)
def test_equal_rows_with_unequal_labels_train_a_member(name) -> None:
    X = np.ones((6, 4), dtype=np.float32)
    members = trained(LEARNERS[name], cut(X, [0, 1, 1, 2, 2, 2], np.zeros(6, dtype=int), 1))
    assert members.failures() == {}
    assert set(asked(members, X)[:, 0]) <= {0, 1, 2}


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("name", LEARNERS)
def test_sizes_of_numbers_raise_nothing(name, size) -> None:
    X, y = blobs(60, 8)
    X = X.astype(np.float64)
    X[:20] *= size
    members = trained(LEARNERS[name], cut(X, y, np.arange(60) // 20, 3))
    assert set(members.failures()) <= {0}
    assert (asked(members, X[20:])[:, 1:] != ABSTAIN).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_row_of_weight_zero_counts_as_absent(name) -> None:
    X, y = blobs(80, 8)
    ids = np.arange(80) // 40
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 80)
    weight[[3, 50]] = 0
    keep = weight > 0
    with_zero = trained(LEARNERS[name], cut(X, y, ids, 2, weight))
    without = trained(LEARNERS[name], cut(X[keep], y[keep], ids[keep], 2, weight[keep]))
    assert with_zero.digests() == without.digests()


@pytest.mark.parametrize("name", LEARNERS)
def test_test_rows_that_are_not_finite_or_too_narrow_are_refused(name) -> None:
    value = np.inf if get_tags(LEARNERS[name]).input_tags.allow_nan else np.nan
    X, y = blobs(60, 8)
    members = trained(LEARNERS[name], cut(X, y, np.arange(60) // 20, 3))
    with pytest.raises(InvalidRowsError, match="infinity"):
        asked(members, np.full((2, 8), value))
    with pytest.raises(InvalidRowsError, match="7 features"):
        asked(members, X[:, :7])


@pytest.mark.parametrize("name", LEARNERS)
def test_images_are_rows_of_pixels(name) -> None:
    X, y = blobs(60, 16)
    ids = np.arange(60) // 20
    flat = trained(LEARNERS[name], cut(X, y, ids, 3))
    square = trained(LEARNERS[name], cut(X.reshape(-1, 4, 4), y, ids, 3))
    assert flat.digests() == square.digests()


def test_no_rows_have_no_votes() -> None:
    X, y = blobs(60, 8)
    members = trained(RidgeClassifier(), cut(X, y, np.arange(60) // 20, 3))
    assert asked(members, X[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    "learner",
    [
        RidgeClassifier(0.0),
        RidgeClassifier("best"),
        RidgeClassifier(precision="half"),
        KernelRidgeClassifier("sigmoid"),
        KernelRidgeClassifier(gamma=-1.0),
        ScaledKernelClassifier(0.0),
        ScaledKernelClassifier(gamma=np.inf),
        ScaledKernelClassifier(least_relevance=0.0),
        ScaledKernelClassifier(n_centers=0),
    ],
)
def test_parameters_that_make_no_sense_are_refused(learner) -> None:
    X, y = blobs(60, 8)
    with pytest.raises(InvalidInputError, match="must be"):
        clone(learner).fit(X, y)
