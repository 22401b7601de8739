"""One row changes one member, at the size of MNIST, for every closed-form learner."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.members.closed_form.classifier import MemberData

from .partitions import LEARNERS, asked, blobs, cut, trained, uneven_ids

N_ROWS, N_PARTITIONS, N_TEST = 60_000, 3_000, 96
EMPTY, SINGLE, LARGEST = 0, 1, 2
ATTACKS = {
    # position of the new row (None: delete instead), and its partition
    "insert-front-largest": (0, LARGEST),
    "insert-front-empty": (0, EMPTY),
    "insert-middle-single": (N_ROWS // 2, SINGLE),
    "delete-largest": (None, LARGEST),
}


@cache
def rows(n_columns: int):
    X, y = blobs(N_ROWS + N_TEST, n_columns)
    return X[:N_ROWS], y[:N_ROWS], uneven_ids(N_ROWS, N_PARTITIONS), X[N_ROWS:]


def attacked(X, y, ids, attack: str):
    position, partition = ATTACKS[attack]
    if position is None:
        row = int(np.flatnonzero(ids == partition)[7])
        return np.delete(X, row, axis=0), np.delete(y, row), np.delete(ids, row)
    new = np.full((1, X.shape[1]), 0.37, dtype=X.dtype)
    return (
        np.insert(X, position, new, axis=0),
        np.insert(y, position, 9),
        np.insert(ids, position, partition),
    )


def changed_members(learner, n_columns: int, attack: str) -> set[int]:
    X, y, ids, X_test = rows(n_columns)
    before = trained(clone(learner), cut(X, y, ids, N_PARTITIONS))
    after = trained(clone(learner), cut(*attacked(X, y, ids, attack), N_PARTITIONS))
    digests = np.array(before.digests()) != np.array(after.digests())
    votes = (asked(before, X_test) != asked(after, X_test)).any(axis=0)
    return set(np.flatnonzero(digests | votes).tolist())


def assert_isolated(learner, n_columns: int, attack: str) -> None:
    changed = changed_members(learner, n_columns, attack)
    touched = {ATTACKS[attack][1]}
    assert changed <= touched, f"members {sorted(changed - touched)[:10]} changed untouched"


@pytest.mark.parametrize("name", LEARNERS)
def test_row_inserted_in_front_into_the_largest_partition_changes_no_other_member(name) -> None:
    assert_isolated(LEARNERS[name], 48, "insert-front-largest")


def test_row_inserted_changes_no_other_member_at_the_width_of_image_features() -> None:
    assert_isolated(LEARNERS["kernel-rbf"], 392, "insert-front-largest")


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", LEARNERS)
def test_no_attack_changes_another_member_at_the_width_of_image_features(name, attack) -> None:
    assert_isolated(LEARNERS[name], 392, attack)


@pytest.mark.parametrize("attack", ["insert-front-largest", "delete-largest"])
def test_the_touched_member_does_change(attack) -> None:
    assert changed_members(RidgeClassifier(), 48, attack) == {LARGEST}


class CentredOnEverything(RidgeClassifier):
    """A leak: rows are centred by the mean of the whole training set."""

    def fit_members(self, data, which, n_classes, seed, *, n_jobs, progress):
        centred = cut(data.X - data.X.mean(axis=0), data.y, self.ids(data), len(data))
        return super().fit_members(
            centred, which, n_classes, seed, n_jobs=n_jobs, progress=progress
        )

    @staticmethod
    def ids(data):
        ids = np.empty(data.n_rows, dtype=np.intp)
        ids[data.order] = np.repeat(np.arange(len(data)), data.sizes)
        return ids


def test_a_learner_that_leaks_fails_this_suite() -> None:
    with pytest.raises(AssertionError, match="changed untouched"):
        assert_isolated(CentredOnEverything(), 48, "insert-front-largest")


@pytest.mark.parametrize("name", LEARNERS)
def test_order_of_rows_changes_nothing(name) -> None:
    X, y = blobs(3_000, 48)
    ids = uneven_ids(3_000, 150)
    order = np.random.default_rng(1).permutation(3_000)
    before = trained(LEARNERS[name], cut(X, y, ids, 150))
    after = trained(LEARNERS[name], cut(X[order], y[order], ids[order], 150))
    assert before.digests() == after.digests()


@pytest.mark.parametrize("name", LEARNERS)
def test_where_rows_lie_in_memory_changes_nothing(name) -> None:
    """BLAS and SIMD loops may treat aligned and unaligned memory differently."""
    learner, n_classes = LEARNERS[name], 10
    X, y = blobs(67, 391)
    settings = learner._settings(391, n_classes)
    classes, places = np.unique(y, return_inverse=True)
    classes = classes.astype(np.int16)
    digests = set()
    for shift in range(9):
        room = np.zeros(67 * 391 + 16)
        rows = room[shift : shift + 67 * 391].reshape(67, 391)
        rows[:] = X
        part = learner._fit_one(MemberData(rows, places, np.ones(67), classes), settings)
        digests.add(part.digest(b""))
    assert len(digests) == 1


@pytest.mark.parametrize("size", [1e-300, 1e14, 1e150])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_row_of_any_size_leaves_members_that_share_its_products_alone(name, size) -> None:
    """Members share tiles, where an infinity times a zero would reach others."""
    X, y = blobs(632, 48)
    X = X.astype(np.float64)
    X, y, X_test = X[:600], y[:600], X[600:]
    ids = np.arange(600) % 100
    hostile = X.copy()
    hostile[57] = size * np.linspace(-1.0, 1.0, 48)
    before = trained(clone(LEARNERS[name]), cut(X, y, ids, 100))
    after = trained(clone(LEARNERS[name]), cut(hostile, y, ids, 100))
    votes = (asked(before, X_test) != asked(after, X_test)).any(axis=0)
    assert set(np.flatnonzero(votes).tolist()) <= {57}
