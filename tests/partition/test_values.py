"""What a member sees is decided by its own rows and by nothing else."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis.extra import numpy as hnp

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition import n_rows, sample_digests, take_canonical

ROWS = np.array([2, 0])


def bits(values):
    return np.asarray(values, dtype=np.float64).view(np.uint64)


@given(hnp.arrays("f8", (3, 4)))
def test_numbers_have_one_zero_and_one_nan(X):
    seen = take_canonical(X, ROWS)
    expected = np.where(np.isnan(X), np.nan, X + 0.0)[ROWS]
    assert np.array_equal(bits(seen), bits(expected))


@pytest.mark.parametrize("dtype", ["bool", "u1", ">i4", "f2", ">f4", "u8", "longdouble"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_dtype_and_layout_come_as_c_ordered_float64(dtype, order):
    X = np.asarray(np.arange(24).reshape(3, 2, 4) % 2, dtype=dtype, order=order)
    for seen in (take_canonical(X, ROWS), take_canonical(X)[ROWS]):
        assert seen.dtype == np.float64
        assert seen.flags.c_contiguous
        assert np.array_equal(seen, X[ROWS].astype(float))


def test_the_callers_array_is_never_returned_or_changed():
    X = np.array([[-0.0, np.nan]])
    seen = take_canonical(X)
    assert not np.shares_memory(seen, X)
    assert np.signbit(X[0, 0])


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix])
def test_sparse_rows_come_as_canonical_csr(kind):
    X = kind(np.array([[0, 3, 1], [0, 0, 0], [2, 0, 0]], dtype="i4"))
    seen = take_canonical(X, ROWS)
    assert seen.format == "csr"
    assert isinstance(seen, sp.sparray) == isinstance(X, sp.sparray)
    assert seen.dtype == np.float64
    assert seen.indices.dtype == seen.indptr.dtype == np.int32
    assert np.array_equal(seen.toarray(), [[2, 0, 0], [0, 3, 1]])


def test_equal_sparse_rows_have_equal_arrays_whatever_is_stored():
    neat = sp.csr_matrix(np.array([[0.0, 3.0, 4.0]]))
    messy = sp.csr_matrix(([4.0, 1.0, -0.0, 2.0], [2, 1, 0, 1], [0, 4]), shape=(1, 3))
    first, second = take_canonical(neat), take_canonical(messy)
    for name in ("data", "indices", "indptr"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert messy.nnz == 4


FRAME = pd.DataFrame(
    {
        "i": [2**60, 1, 3],
        "b": [True, False, True],
        "s": ["x", None, "y"],
        "c": pd.Categorical(["u", "v", "u"]),
        "t": pd.to_datetime(["2020-01-01", None, "2021-01-01"]),
    },
    index=[9, 8, 7],
)


@pytest.mark.parametrize("frame", [FRAME, pl.from_pandas(FRAME)], ids=["pandas", "polars"])
def test_frames_come_as_pandas_with_names_and_a_fresh_index(frame):
    seen = take_canonical(frame, ROWS)
    assert list(seen.columns) == ["i", "b", "s", "c", "t"]
    assert seen.index.equals(pd.RangeIndex(2))
    assert [str(t) for t in seen.dtypes] == [
        "float64",
        "float64",
        "object",
        "object",
        "datetime64[ns]",
    ]
    assert seen["s"].tolist() == ["y", "x"]
    assert seen["c"].tolist() == ["u", "u"]


def test_duplicate_column_names_survive():
    frame = pd.DataFrame([[1, "a"], [2, "b"]], columns=["x", "x"])
    assert list(take_canonical(frame).columns) == ["x", "x"]


ODD_CELLS = ["oops", None, b"x", datetime.date(2020, 1, 1), 2**70, pd.NA]


@pytest.mark.parametrize("odd", ODD_CELLS, ids=repr)
def test_a_strange_cell_elsewhere_changes_no_bit_of_these_rows(odd):
    clean = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, np.nan, 2.0], "s": ["x", "y", "z"]})
    row = pd.DataFrame({"a": [odd], "b": [odd], "s": [odd]}, dtype="object")
    poisoned = pd.concat([clean.astype("object"), row], ignore_index=True)
    first, second = take_canonical(clean, ROWS), take_canonical(poisoned, ROWS)
    pd.testing.assert_frame_equal(first, second)
    numbers = [frame[["a", "b"]].to_numpy() for frame in (first, second)]
    assert numbers[0].tobytes() == numbers[1].tobytes()
    assert numbers[0].strides == numbers[1].strides


def test_frames_of_numbers_have_one_layout_whatever_their_dtypes():
    X = np.arange(12.0).reshape(4, 3)
    frames = [
        pd.DataFrame(X),
        pd.DataFrame(np.asfortranarray(X)),
        pd.DataFrame({j: X[:, j] for j in range(3)}),
        pd.DataFrame(X).astype({0: "Int64", 1: "int8", 2: "object"}),
        pl.DataFrame(X, ["0", "1", "2"]),
    ]
    for frame in frames:
        seen = take_canonical(frame, ROWS).to_numpy()
        assert seen.flags.c_contiguous
        assert np.array_equal(seen, X[ROWS])


def test_arrays_of_objects_are_numbers_where_these_rows_are():
    X = np.array([[1, 2.5], ["a", None], [True, 2**60]], dtype=object)
    numbers = take_canonical(X, ROWS)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [[1.0, 2.0**60], [1.0, 2.5]]
    mixed = take_canonical(X, np.array([1, 0]))
    assert mixed.dtype == object
    assert mixed[0, 0] == "a"
    assert np.isnan(mixed[0, 1])
    assert mixed[1].tolist() == [1.0, 2.5]
    assert {type(cell) for cell in mixed[1]} == {float}


@pytest.mark.parametrize("container", [list, np.array, pd.Series, pl.Series])
def test_texts_come_as_a_one_dimensional_array(container):
    seen = take_canonical(container(["one", "two", "three"]), ROWS)
    assert seen.dtype == object
    assert seen.tolist() == ["three", "one"]


def test_lists_of_rows_come_as_arrays():
    assert take_canonical([[1, 2], [3, 4.5], [5, None]], ROWS).shape == (2, 2)
    assert take_canonical([np.ones(2), np.zeros(2), np.ones(2)], ROWS).tolist() == [[1, 1], [1, 1]]
    days = [np.array(["2020-01-01"], dtype="M8[ns]")] * 3
    assert take_canonical(days, ROWS)[0, 0] == np.datetime64("2020-01-01")


def test_images_of_different_sizes_come_one_by_one():
    images = [np.ones((2, 3), dtype="u1"), np.ones((4, 1)), np.zeros((1, 1), dtype=bool)]
    seen = take_canonical(images, ROWS)
    assert [image.shape for image in seen] == [(1, 1), (2, 3)]
    assert all(image.dtype == np.float64 for image in seen)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(InvalidRowsError, match="same number of cells"):
        take_canonical([[1], [1, 2]])


def test_dates_come_in_the_finest_unit_that_holds_them():
    near = pd.DataFrame({"t": [datetime.date(2020, 1, 1), None]})
    far = pd.DataFrame({"t": [datetime.date(2020, 1, 1), datetime.date(9999, 1, 1)]})
    assert take_canonical(near)["t"].dtype == "datetime64[ns]"
    assert take_canonical(far)["t"].dtype == "datetime64[us]"


def test_mixed_dates_and_text_come_as_objects():
    frame = pd.DataFrame({"t": [datetime.date(2020, 1, 1), "x"]}, dtype="object")
    assert take_canonical(frame)["t"].tolist()[0] == np.datetime64("2020-01-01")


EMPTY = np.empty(0, dtype=np.intp)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((3, 2)),
        np.array([["a"], ["b"]]),
        sp.csr_matrix(np.eye(3)),
        FRAME,
        pl.from_pandas(FRAME),
        pd.Series(["a"]),
        ["a", "b"],
        [np.ones((2, 2))],
    ],
    ids=lambda X: type(X).__name__,
)
def test_no_rows_can_be_taken(X):
    assert n_rows(take_canonical(X, EMPTY)) == 0


@given(hnp.arrays("f8", (2, 3)), hnp.arrays("f8", (2, 3)))
def test_equal_digests_mean_equal_bits(X, Y):
    same = (sample_digests(X) == sample_digests(Y)).all(axis=1)
    equal = (bits(take_canonical(X)) == bits(take_canonical(Y))).all(axis=1)
    assert np.array_equal(same, equal)
