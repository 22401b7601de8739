"""What only schedules (workers, memory, subsets, other test rows) changes no bit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

from poisonproof.exceptions import StoreError
from poisonproof.members.closed_form import restore_members, stacked
from poisonproof.progress import Silent

from .partitions import LEARNERS, asked, blobs, cut, trained, uneven_ids

K = 150


@pytest.fixture(scope="module")
def data():
    X, y = blobs(6_000, 96)
    return cut(X[:5_000], y[:5_000], uneven_ids(5_000, K), K), X[5_000:]


@pytest.fixture(params=LEARNERS)
def learner(request):
    return clone(LEARNERS[request.param])


def test_workers_change_nothing(learner, data) -> None:
    train, X_test = data
    one, two = trained(learner, train, n_jobs=1), trained(learner, train, n_jobs=2)
    assert one.digests() == two.digests()
    np.testing.assert_array_equal(asked(one, X_test, 1), asked(two, X_test, 2))


def test_memory_changes_nothing(learner, data, monkeypatch) -> None:
    train, X_test = data
    members = trained(learner, train)
    large = asked(members, X_test)
    monkeypatch.setattr(stacked, "MAX_BYTES", 1)
    np.testing.assert_array_equal(asked(members, X_test), large)


def test_votes_need_no_more_than_the_working_memory(learner, data, monkeypatch) -> None:
    train, X_test = data
    members = trained(learner, train)
    monkeypatch.setattr(stacked, "MAX_BYTES", 2**24)
    many = np.tile(X_test, (5, 1))
    asked(members, many[:64])
    tracemalloc.start()
    votes = asked(members, many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - votes.nbytes <= 2**24


def test_votes_on_a_row_do_not_depend_on_the_rows_asked_with_it(learner, data) -> None:
    train, X_test = data
    members = trained(learner, train)
    together = asked(members, X_test)
    alone = [asked(members, X_test[[row]])[0] for row in (0, 1, 500, 999)]
    np.testing.assert_array_equal(alone, together[[0, 1, 500, 999]])
    np.testing.assert_array_equal(asked(members, X_test[13:]), together[13:])


def test_scores_on_a_row_do_not_depend_on_the_rows_asked_with_it(learner, data) -> None:
    train, X_test = data
    members = trained(learner, train, which=range(20))
    together = members.scores(X_test, n_jobs=None, progress=Silent())
    alone = members.scores(X_test[[777]], n_jobs=None, progress=Silent())
    np.testing.assert_array_equal(alone[0], together[777])


def test_votes_are_the_largest_scores(learner, data) -> None:
    train, X_test = data
    members = trained(learner, train, which=range(1, 40))
    scores = members.scores(X_test, n_jobs=None, progress=Silent())
    np.testing.assert_array_equal(scores.argmax(axis=2), asked(members, X_test))


def test_replaced_members_equal_training_from_scratch(learner, data) -> None:
    train, X_test = data
    X, y = np.asarray(train.X).copy(), train.y.copy()
    touched = [2, 40]
    for partition in touched:
        y[train.rows(partition)[0]] = (y[train.rows(partition)[0]] + 1) % 10
    ids = uneven_ids(5_000, K)
    changed = cut(X, y, ids, K)
    scratch = trained(learner, changed)
    patched = trained(learner, train).replaced(touched, trained(learner, changed, which=touched))
    assert patched.digests() == scratch.digests()
    np.testing.assert_array_equal(asked(patched, X_test), asked(scratch, X_test))


def test_restored_members_are_the_same(learner, data) -> None:
    train, X_test = data
    members = trained(learner, train)
    restored = restore_members(*members.export())
    assert restored.digests() == members.digests()
    assert restored.failures() == members.failures()
    np.testing.assert_array_equal(asked(restored, X_test), asked(members, X_test))


@pytest.mark.parametrize("damage", ["lost", "cut", "retyped"])
def test_damaged_arrays_are_refused(learner, data, damage) -> None:
    shared, members = trained(learner, data[0], which=range(1, 9)).export()
    arrays = members[3][1]
    if damage == "lost":
        del arrays["rows.values"]
    elif damage == "cut":
        arrays["rows.values"] = arrays["rows.values"][:-1]
    else:
        arrays["rows.values"] = arrays["rows.values"].astype(np.int64)
    with pytest.raises(StoreError, match=r"rows\.values"):
        restore_members(shared, members)


def test_unknown_kinds_of_members_are_refused() -> None:
    with pytest.raises(StoreError, match="Unknown kind"):
        restore_members({"kind": "oracle"}, [])


def test_one_fit_equals_the_member_of_that_partition(learner, data) -> None:
    train, X_test = data
    members = trained(learner, train)
    partition = train[2]
    assert set(partition.y) == set(range(10))
    shuffled = np.random.default_rng(0).permutation(len(partition))
    single = clone(learner).fit(partition.X[shuffled], partition.y[shuffled])
    assert single.members_.digests()[0] == members.digests()[2]
    np.testing.assert_array_equal(single.predict(X_test), asked(members, X_test)[:, 2])


def test_wide_rows_are_asked_in_chunks_that_change_nothing(monkeypatch) -> None:
    """As wide as maps of images are: more columns than a chunk was made for."""
    X, y = blobs(1_100, 12_800)
    train = cut(X[:600], y[:600], np.arange(600) % 3, 3)
    members = trained(clone(LEARNERS["scaled-kernel"]), train)
    together = members.scores(X[600:], n_jobs=1, progress=Silent())
    with monkeypatch.context() as little:
        little.setattr(stacked, "MAX_BYTES", 1)
        alone = members.scores(X[600:], n_jobs=1, progress=Silent())
    np.testing.assert_array_equal(alone, together)
    asked(members, X[600:664])
    tracemalloc.start()
    votes = asked(members, X[600:])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - votes.nbytes <= stacked.MAX_BYTES
