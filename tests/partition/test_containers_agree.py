"""The same values in another dtype, layout or container have the same digests."""

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

from poisonproof.partition import ContentHash, sample_digests, take_canonical

SPARSE = [
    kind
    for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in (getattr(sp, f"{name}_matrix"), getattr(sp, f"{name}_array"))
]
DTYPES = ["bool", "uint8", "int8", "<u2", ">u2", "<i4", ">i4", "<i8", ">i8", "<u8", "<f4", ">f8"]


def assert_same(*containers):
    first = sample_digests(containers[0])
    for other in containers[1:]:
        assert np.array_equal(sample_digests(other), first), type(other)


def shapes(min_side=0):
    return hnp.array_shapes(min_dims=2, max_dims=2, min_side=min_side, max_side=12)


mostly_zero = hnp.arrays(st.sampled_from(DTYPES), shapes(), elements=None, fill=st.just(0))


@given(mostly_zero)
def test_arrays_lists_and_memory_layouts_agree(X):
    copies = [np.asfortranarray(X), X[::-1][::-1], np.repeat(X, 2, axis=1)[:, ::2]]
    exact = [X.tolist(), X.astype(object), list(X), X.astype(X.dtype.newbyteorder())]
    assert_same(X, *copies, *(c for c in exact if len(X)))


@given(mostly_zero)
def test_sparse_matrices_agree_with_dense_arrays(X):
    native = X.astype(X.dtype.newbyteorder("="))
    for kind in SPARSE:
        if X.size or kind(np.zeros((1, 1))).format in {"csr", "csc", "coo"}:
            assert_same(X, kind(native))


@given(hnp.arrays(st.sampled_from(["u1", "i4", "f8"]), shapes(), fill=st.just(0)))
def test_frames_of_numbers_agree_with_arrays(X):
    if X.shape[1]:
        names = [f"c{j}" for j in range(X.shape[1])]
        assert_same(X, pd.DataFrame(X), pd.DataFrame(X, columns=names), pl.DataFrame(X, names))


@given(hnp.arrays("u1", hnp.array_shapes(min_dims=3, max_dims=4, min_side=1, max_side=4)))
def test_shape_of_equal_sized_images_is_not_part_of_the_sample(X):
    assert_same(X, X.reshape(len(X), -1), X.reshape(len(X), -1).astype(float).tolist())


@given(hnp.arrays("f8", shapes(1), elements=st.floats(-1e300, 1e300)))
def test_narrow_floats_are_exact(X):
    with np.errstate(over="ignore"):
        for narrow in (X.astype("f4"), X.astype("f2")):
            assert_same(narrow, narrow.astype("f8"), narrow.astype(np.longdouble))


COLUMNS = {
    "integers": (
        [0, 255, -1, 2**60 + 1],
        ["int64", "Int64", "int64[pyarrow]", "object", "category"],
        [pl.Int64],
    ),
    "integers with a gap": (
        [0, None, 2**53 + 1, 2**60 + 1],
        ["Int64", "int64[pyarrow]", "object", "category"],
        [pl.Int64],
    ),
    "unsigned": (
        [0, 2**63, 2**64 - 1, 5],
        ["uint64", "UInt64", "uint64[pyarrow]", "object"],
        [pl.UInt64],
    ),
    "floats": (
        [0.0, 0.5, 1e300, None],
        ["float64", "Float64", "float64[pyarrow]", "object"],
        [pl.Float64],
    ),
    "booleans": (
        [True, False, True, None],
        ["boolean", "bool[pyarrow]", "object", "Int8"],
        [pl.Boolean],
    ),
    "text": (
        ["a", "", "é\U0001f600", None],
        ["str", "string", "object", "category", "string[pyarrow]"],
        [pl.String, pl.Categorical, pl.Enum(["", "a", "é\U0001f600"])],
    ),
    "bytes": ([b"a", b"", b"\xff\x00", None], ["object", "binary[pyarrow]"], [pl.Binary]),
    "dates": (
        [datetime.date(1, 1, 1), datetime.date(2020, 2, 29), datetime.date(9999, 12, 31), None],
        ["object", "date32[pyarrow]", "datetime64[s]", "datetime64[us]"],
        [pl.Date, pl.Datetime("ms"), pl.Datetime("us")],
    ),
}


def pandas_series(values, dtype):
    return pd.Series(pd.Series(values, dtype="object"), dtype=dtype)


@pytest.mark.parametrize(("values", "pandas", "polars"), COLUMNS.values(), ids=COLUMNS)
def test_every_column_type_agrees_with_plain_lists(values, pandas, polars):
    rows = [[value, 1.5] for value in values]
    cells = np.array(rows, dtype=object)
    frames = [pd.DataFrame({"a": pandas_series(values, t), "b": 1.5}) for t in pandas]
    frames += [pl.DataFrame({"a": pl.Series(values, dtype=t), "b": [1.5] * 4}) for t in polars]
    assert_same(rows, cells, *frames)


@pytest.mark.parametrize(("values", "pandas", "polars"), COLUMNS.values(), ids=COLUMNS)
def test_members_see_the_same_frame_from_every_column_type(values, pandas, polars):
    frames = [pd.DataFrame({"a": pandas_series(values, t), "b": 1.5}) for t in pandas]
    frames += [pl.DataFrame({"a": pl.Series(values, dtype=t), "b": [1.5] * 4}) for t in polars]
    rows = np.array([2, 0, 1, 3])
    first = take_canonical(frames[0], rows)
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(take_canonical(frame, rows), first)


def test_column_names_are_not_hashed():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert_same(frame, frame.set_axis(["c", "c"], axis=1), pl.from_pandas(frame))


def test_series_agree_with_lists_of_scalars():
    texts = ["one", "two", None]
    assert_same(texts, np.array(texts, dtype=object), pd.Series(texts), pl.Series(texts))
    assert_same(texts[:2], np.array(texts[:2]), [["one"], ["two"]])


def test_int64_columns_stay_exact_beside_float_columns():
    rows = [[2**53 + i, 0.5] for i in range(4)]
    frame = pd.DataFrame({"id": [row[0] for row in rows], "x": 0.5})
    assert len(np.unique(sample_digests(frame), axis=0)) == 4
    assert_same(rows, frame, pl.from_pandas(frame))


def test_whole_floats_beside_large_integers_are_integers():
    frame = pd.DataFrame({"id": [2**60 + 1], "x": [3.0]})
    assert_same(np.array([[2**60 + 1, 3]]), frame)


def test_uint64_beside_negative_integers_is_exact():
    assert_same(
        pd.DataFrame({"a": np.array([2**64 - 1], dtype="u8"), "b": [-1]}), [[2**64 - 1, -1]]
    )


def test_sparse_duplicates_are_summed_and_stored_zeros_dropped_without_touching_the_caller():
    entries = ([1.0, 2.0, 0.0, 5.0, -5.0], ([0, 0, 0, 1, 1], [3, 3, 1, 2, 2]))
    coo = sp.coo_matrix(entries, shape=(2, 40))
    csr = sp.csr_matrix(([1.0, 2.0, 0.0], [3, 3, 1], [0, 3, 3]), shape=(2, 40))
    before = csr.data.copy(), csr.indices.copy()
    dense = np.zeros((2, 40))
    dense[0, 3] = 3
    assert_same(dense, coo, csr)
    assert np.array_equal(csr.data, before[0])
    assert np.array_equal(csr.indices, before[1])


def test_sparse_rows_of_every_density_agree():
    rng = np.random.default_rng(0)
    for density in (0.0, 0.05, 0.12, 0.13, 0.5, 1.0):
        X = rng.normal(size=(20, 64)) * (rng.random((20, 64)) < density)
        assert_same(X, sp.csr_matrix(X), sp.csc_array(X), X.tolist(), pd.DataFrame(X))


def test_wide_sparse_uint64_agrees():
    X = np.zeros((2, 70_000), dtype="u8")
    X[0, [1, 69_999]] = 2**64 - 1, 1
    X[1, 500] = 2**63
    assert_same(X, sp.csr_matrix(X), X.astype(object))


def test_memory_maps_are_read_in_place(tmp_path):
    X = np.random.default_rng(0).integers(0, 9, (3000, 400), dtype="i4")
    np.save(tmp_path / "x.npy", X)
    assert_same(X, np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_tensors_agree_with_arrays():
    torch = pytest.importorskip("torch")
    X = np.arange(24, dtype="f4").reshape(2, 3, 4)
    assert_same(X, torch.from_numpy(X))
    assert_same(list(X), list(torch.from_numpy(X)))


def test_images_of_a_sequence_agree_whatever_their_dtype():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (3, h, 5), dtype="u1") for h in (4, 7, 4, 9)]
    boxed = np.empty(4, dtype=object)
    boxed[:] = images
    assert_same(images, boxed, tuple(images), [image.astype("f8") for image in images])


@given(st.permutations(range(40)), st.integers(0, 39))
def test_a_digest_does_not_depend_on_other_rows(order, alone):
    rows = [[i, 0.5, "text"] if i % 3 else [i, 2**60 + i, None] for i in range(40)]
    digests = sample_digests(rows)
    assert np.array_equal(sample_digests([rows[i] for i in order]), digests[list(order)])
    assert np.array_equal(sample_digests(rows[alone : alone + 1])[0], digests[alone])


def test_blocks_of_many_sizes_give_the_digests_of_single_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 20)).round(rng.integers(0, 3, (60_000, 1)).max())
    X[rng.random(X.shape) < 0.5] = 0
    some = rng.integers(0, len(X), 50)
    digests = sample_digests(X)
    assert np.array_equal(digests[some], np.vstack([sample_digests(X[i : i + 1]) for i in some]))


def test_partition_of_a_row_survives_a_strange_cell_elsewhere():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.0, 2.0]})
    poisoned = pd.concat([frame, pd.DataFrame({"a": ["oops"], "b": [None]})], ignore_index=True)
    partitioner = ContentHash(n_partitions=1000)
    assert np.array_equal(partitioner.assign(poisoned)[:3], partitioner.assign(frame))
