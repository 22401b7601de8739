"""The order of SS-DPA is the published one, in every container."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition import SortedIndex, sorted_order

K = 1009  # larger than the data: the partition is the rank


def ranks(X):
    return SortedIndex(n_partitions=K).assign(X).tolist()


def published(X):
    """Deal out the order of `numpy.lexsort`; repeated samples count once."""
    order = np.lexsort(X.T)
    sorted_rows = X[order]
    new = np.ones(len(X), dtype=bool)
    new[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(axis=1)
    assigned = np.empty(len(X), dtype=int)
    assigned[order] = (np.cumsum(new) - 1) % K
    return assigned.tolist()


def some_rows(dtype, elements=None):
    return hnp.arrays(
        dtype,
        st.tuples(st.integers(1, 9), st.integers(1, 6)),
        elements=elements,
        fill=st.just(0),
    )


few = st.sampled_from([-2, -1, 0, 0, 0, 1, 2])


@given(st.sampled_from(["u1", "i1", ">i4", "i8", "f4", "f8"]).flatmap(some_rows))
def test_order_is_that_of_lexsort(X):
    if X.dtype.kind == "f":
        X[np.isnan(X)] = 0
    assert ranks(X) == published(X)


@given(some_rows("i8", few))
def test_ties_and_signs_are_ordered_alike_in_every_container(X):
    expected = published(X)
    names = [f"c{j}" for j in range(X.shape[1])]
    containers = [X.astype("f8"), X.astype(object), X.tolist(), list(X), np.asfortranarray(X)]
    containers += [sp.csr_matrix(X), sp.coo_array(X.astype("f4")), pd.DataFrame(X)]
    containers += [pl.DataFrame(X, names), pd.DataFrame(X).astype("Int64")]
    for container in containers:
        assert ranks(container) == expected, type(container)


@given(some_rows("f8", st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -1e300])))
def test_nan_comes_last_and_zero_has_no_sign(X):
    shifted = np.where(np.isnan(X), np.finfo(float).max, np.clip(X, -1e308, 1e308)) + 0.0
    assert ranks(X) == published(shifted)
    assert ranks(sp.csr_matrix(X)) == ranks(X)
    assert ranks(X.tolist()) == ranks(X)


def test_integers_that_float64_would_merge_are_told_apart():
    column = [2**53 + 1, 2**53, 2**60 + 1, 2**60, 0.5]
    rows = [[value] for value in column]
    assert ranks(rows) == [2, 1, 4, 3, 0]
    integers = np.array(column[:4])
    expected = [1, 0, 3, 2]
    for container in (integers, integers.astype("u8"), sp.csr_matrix(integers[:, None])):
        assert ranks(container) == expected
    assert ranks(pd.DataFrame({"a": integers, "b": 0.0})) == expected


def test_repeated_samples_share_a_partition_and_count_once():
    X = np.array([[1], [2], [1], [3], [2], [2]])
    assert SortedIndex(n_partitions=2).assign(X).tolist() == [0, 1, 0, 0, 1, 1]


def test_labels_and_row_order_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (300, 6))
    order = rng.permutation(300)
    assert np.array_equal(np.array(ranks(X[order])), np.array(ranks(X))[order])


def test_partitions_are_balanced_over_distinct_samples():
    X = np.unique(np.random.default_rng(0).integers(0, 9, (700, 5)), axis=0)
    sizes = np.bincount(SortedIndex(n_partitions=50).assign(X), minlength=50)
    assert np.ptp(sizes) <= 1


@given(
    st.lists(
        hnp.arrays(
            "i4",
            st.tuples(st.just(2), st.integers(1, 3), st.integers(1, 3)),
            elements=few,
            fill=st.just(0),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_images_of_different_sizes_are_padded_with_black(images):
    frame = np.max([image.shape for image in images], axis=0)
    padded = np.stack(
        [np.pad(i, [(0, n - m) for n, m in zip(frame, i.shape, strict=True)]) for i in images]
    )
    expected = published(padded.reshape(len(images), -1))
    assert ranks(images) == expected
    assert ranks([i.astype("f8") if i.size % 2 else i for i in images]) == expected


def test_images_that_share_a_long_end_are_told_apart(monkeypatch):
    rng = np.random.default_rng(0)
    images = [np.ones((h, 40), dtype="u1") for h in (30, 30, 20, 30, 20)]
    images[1][0, 0] = 2
    images[4][0, 1] = 0
    monkeypatch.setattr(sorted_order, "LONGEST_KEY", 64)
    assert ranks(images) == [2, 3, 1, 2, 0]
    X = np.ones((200, 300), dtype="u1")
    X[:, :3] = rng.integers(0, 4, (200, 3))
    assert ranks(X) == ranks(sp.csr_matrix(X)) == published(X)


def test_text_and_dates_have_a_documented_order():
    day = datetime.date(2020, 1, 1)
    cells = [day, "b", None, "a", 2.5, b"z", -1, "", 2**60 + 1]
    rows = [[cell, 7] for cell in cells]
    assert ranks(rows) == [8, 7, 3, 6, 1, 4, 0, 5, 2]
    texts = ["b", "a", "é", "b"]
    for container in (texts, np.array(texts), pd.Series(texts), pl.Series(texts)):
        assert ranks(container) == [1, 0, 2, 1]
    assert ranks(pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["y", "x"], ["y", "x"])})) == [1, 0]


@pytest.mark.parametrize(
    "rows",
    [
        [np.ones((2, 2)), np.ones(4)],
        [["a", "b"], ["c"]],
        [np.array([[2**60 + 1]]), np.array([[0.5, 1.0]])],
    ],
    ids=["kinds", "text of different lengths", "rounded"],
)
def test_rows_that_cannot_be_compared_are_refused(rows):
    with pytest.raises(InvalidRowsError, match="SortedIndex"):
        ranks(rows)


def test_sparse_rows_are_not_densified():
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 2**40, (500, 30)), axis=1)
    indptr = np.arange(501) * 30
    X = sp.csr_array((rng.normal(size=15_000), columns.ravel(), indptr), shape=(500, 2**40))
    assert sorted(ranks(X)) == list(range(500))


def test_no_columns_is_one_sample():
    assert ranks(np.empty((3, 0))) == [0, 0, 0]
    assert ranks(sp.csr_matrix((3, 0))) == [0, 0, 0]
