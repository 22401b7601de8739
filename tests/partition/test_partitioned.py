"""A partition is a multiset of rows in canonical order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from poisonproof.partition import (
    ContentHash,
    GroupHash,
    PixelSum,
    SortedIndex,
    partition_data,
    sample_digests,
)
from poisonproof.partition.partitioned import canonical_order, row_keys

K = 7


def digits(m=400, repeats=3):
    """Return rows that repeat, with labels and weights that repeat too."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (m // repeats, 3))[rng.integers(0, m // repeats, m)]
    return X, rng.integers(0, 3, m), rng.integers(0, 3, m) / 2


@pytest.mark.parametrize("n_partitions", [1, 7, 70_000])
@pytest.mark.parametrize("weighted", [False, True])
def test_order_is_by_partition_then_digest_then_label_then_weight(n_partitions, weighted):
    X, y, weight = digits()
    digests = sample_digests(X)
    assignment = ContentHash(n_partitions=n_partitions).assign(X)
    given_weight = weight if weighted else None
    order, offsets = canonical_order(assignment, digests, y, given_weight, n_partitions)
    keys = [
        (assignment[i], digests[i].tobytes(), y[i], weight[i] if weighted else 0) for i in order
    ]
    assert sorted(order) == list(range(len(X)))
    assert keys == sorted(keys)
    sizes = np.bincount(assignment, minlength=n_partitions)
    assert np.array_equal(np.diff(offsets), sizes)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), max_size=30))
def test_digests_that_share_their_first_words_are_told_apart(rows):
    assignment = np.array([row[0] for row in rows], dtype=np.int64)
    y = np.array([row[2] for row in rows], dtype=np.int64)
    digests = np.zeros((len(rows), 32), dtype=np.uint8)
    digests[:, 31] = [row[1] for row in rows]
    order, _ = canonical_order(assignment, digests, y, None, 3)
    assert [rows[i] for i in order] == sorted(rows)


@pytest.mark.parametrize("partitioner", [ContentHash, PixelSum, SortedIndex])
def test_reordering_the_rows_changes_no_bit_of_any_partition(partitioner):
    X, y, weight = digits()
    shuffled = np.random.default_rng(1).permutation(len(X))
    rule = partitioner(n_partitions=K)
    before = partition_data(X, y, rule, sample_weight=weight)
    after = partition_data(X[shuffled], y[shuffled], rule, sample_weight=weight[shuffled])
    assert before.partition_digests() == after.partition_digests()
    for first, second in zip(before, after, strict=True):
        assert first.X.tobytes() == second.X.tobytes()
        assert first.y.tobytes() == second.y.tobytes()
        assert first.sample_weight.tobytes() == second.sample_weight.tobytes()


def test_containers_give_the_same_partitions():
    X, y, _ = digits()
    expected = partition_data(X, y, ContentHash(n_partitions=K))
    names = ["a", "b", "c"]
    others = [sp.coo_matrix(X), pd.DataFrame(X), pl.DataFrame(X, names), X.tolist(), list(X)]
    for other in others:
        data = partition_data(other, y, ContentHash(n_partitions=K))
        assert data.partition_digests() == expected.partition_digests()
        for first, second in zip(expected, data, strict=True):
            seen = second.X.toarray() if sp.issparse(second.X) else np.asarray(second.X)
            assert np.array_equal(first.X, seen)


def test_inserting_a_row_touches_one_partition_and_replacing_at_most_two():
    X, y, _ = digits()
    rule = ContentHash(n_partitions=50)
    before = partition_data(X, y, rule).partition_digests()

    def touched(X, y):
        after = partition_data(X, y, rule).partition_digests()
        return sum(a != b for a, b in zip(before, after, strict=True))

    assert touched(np.vstack([X, X[:1]]), np.append(y, y[0])) == 1
    assert touched(X[1:], y[1:]) == 1
    flipped = y.copy()
    flipped[3] = (flipped[3] + 1) % 3
    assert touched(X, flipped) == 1
    changed = X.copy()
    changed[5] = [100, 200, 300]
    assert 1 <= touched(changed, y) <= 2


def test_flipping_labels_of_one_sample_touches_one_partition_of_sorted_index():
    X, y, _ = digits()
    rule = SortedIndex(n_partitions=50)
    before = partition_data(X, y, rule).partition_digests()
    copies = (X[:1] == X).all(axis=1)
    assert copies.sum() > 1
    after = partition_data(X, np.where(copies, 9, y), rule).partition_digests()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_copy_more_or_a_weight_changes_the_digest_of_a_partition():
    X, y = np.array([[1], [1]]), np.array([0, 0])
    rule = ContentHash(n_partitions=1)
    digests = {
        partition_data(X, y, rule).digest(0),
        partition_data(X[:1], y[:1], rule).digest(0),
        partition_data(X, y, rule, sample_weight=np.ones(2)).digest(0),
        partition_data(X, y, rule, sample_weight=np.array([1.0, 2.0])).digest(0),
        partition_data(X, y + 1, rule).digest(0),
        partition_data(X[:0], y[:0], rule).digest(0),
        partition_data(X[:0], y[:0], rule, sample_weight=np.ones(0)).digest(0),
    }
    assert len(digests) == 7


def test_one_digest_is_that_of_all():
    data = partition_data(*digits()[:2], ContentHash(n_partitions=K))
    assert [data.digest(i) for i in range(K)] == data.partition_digests()


def test_assignment_is_that_of_the_partitioner():
    X, y, _ = digits()
    data = partition_data(X, y, ContentHash(n_partitions=K))
    assert np.array_equal(data.assignment, ContentHash(n_partitions=K).assign(X))
    assert len(data) == K
    assert data.n_rows == len(X)
    assert data.sizes.sum() == len(X)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix, pd.DataFrame, list])
def test_only_some_partitions_keep_their_rows_and_numbers(wrap):
    X, y, weight = digits()
    data = partition_data(wrap(X), y, ContentHash(n_partitions=K), sample_weight=weight)
    some = data.only([5, 2])
    assert len(some) == K
    assert some.n_rows == data.sizes[2] + data.sizes[5] == len(some.y)
    for index in range(K):
        if index in {2, 5}:
            assert some.digest(index) == data.digest(index)
            assert np.array_equal(some[index].y, data[index].y)
            assert len(some[index]) == len(data[index])
        else:
            assert len(some[index]) == 0


def test_groups_decide_under_group_hash():
    X, y, _ = digits(40)
    groups = [f"user {i % 5}" for i in range(40)]
    data = partition_data(X, y, GroupHash(n_partitions=K), groups=groups)
    assert np.array_equal(data.assignment, GroupHash(n_partitions=K).assign(X, groups))


def test_empty_training_sets_have_empty_partitions():
    data = partition_data(np.empty((0, 3)), np.empty(0, int), ContentHash(n_partitions=K))
    assert [len(partition) for partition in data] == [0] * K


def test_row_keys_are_equal_for_equal_rows_only():
    digests = np.zeros((3, 32), dtype=np.uint8)
    digests[2, 31] = 1
    keys = row_keys(digests, np.array([1, 1, 1]), np.array([0.5, 0.25, 0.5]))
    assert len(set(keys.tolist())) == 3
    assert len(set(row_keys(digests, np.array([1, 1, 1]), None).tolist())) == 2
