"""The format of the canonical bytes is stable: what is pinned here decides where rows go."""

from __future__ import annotations

import datetime
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poisonproof.partition import canonical_bytes, sample_digests
from tests.partition.reference import reference_bytes

WIDTH_3 = "0300000000000000"

GOLDEN = {
    "bytes": ([1, 2, 255], "4442" + WIDTH_3 + "0102ff"),
    "integers": (
        [1, -2, 256],
        "4449" + WIDTH_3 + "0100000000000000feffffffffffffff0001000000000000",
    ),
    "floats": (
        [0.5, -0.0, float("nan")],
        "4446" + WIDTH_3 + "000000000000e03f0000000000000000000000000000f87f",
    ),
    "2^53 + 1 beside a half": (
        [2**53 + 1, 0.5, 0],
        "444f" + WIDTH_3 + "69010000000000200066000000000000e03f690000000000000000",
    ),
    "text, missing, number": (
        ["ü", None, 7],
        "444f" + WIDTH_3 + "730200000000000000c3bc6e690700000000000000",
    ),
    "all zero": ([0, 0, 0], "5342" + WIDTH_3),
    "no cells": ([], "4442" + "0000000000000000"),
}


@pytest.mark.parametrize(("row", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_canonical_bytes_are_pinned(row, expected):
    assert canonical_bytes([row])[0].hex() == expected


def test_mostly_zero_rows_are_pinned_as_pairs():
    row = np.zeros(300)
    row[[2, 299]] = 7, 1
    expected = "5342" + "2c01000000000000" + "020007" + "2b0101"
    assert canonical_bytes(row[None])[0].hex() == expected


def test_digest_is_sha256_of_the_tagged_bytes():
    expected = hashlib.sha256(b"poisonproof.row1" + canonical_bytes([[1, 2, 3]])[0]).digest()
    assert sample_digests([[1, 2, 3]])[0].tobytes() == expected
    assert expected.hex().startswith("0598b6c234611cdc")


def test_images_of_a_sequence_carry_their_shape():
    image = np.arange(6)
    wide, tall = canonical_bytes([image.reshape(2, 3), image.reshape(3, 2)])
    assert wide == reference_bytes(range(6), shape=(2, 3))
    assert tall == reference_bytes(range(6), shape=(3, 2))
    assert canonical_bytes(image.reshape(1, 2, 3))[0] == reference_bytes(range(6))


integers = st.one_of(
    st.integers(0, 255),
    st.integers(-(2**63), 2**64),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, 10**30]),
)
floats = st.floats(allow_nan=True, allow_infinity=True)
numbers = st.one_of(st.just(0), integers, floats, st.none())
times = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
anything = st.one_of(numbers, st.text(max_size=5), st.binary(max_size=5), times)


@given(st.lists(st.lists(numbers, min_size=0, max_size=20), max_size=5))
def test_rows_of_numbers_follow_the_written_format(rows):
    assert canonical_bytes(rows) == [reference_bytes(row) for row in rows]


@given(st.lists(st.lists(anything, min_size=0, max_size=6), max_size=5))
def test_mixed_rows_follow_the_written_format(rows):
    assert canonical_bytes(rows) == [reference_bytes(row) for row in rows]


@given(
    st.integers(1, 70),
    st.lists(st.tuples(st.integers(0, 69), numbers), max_size=9),
)
def test_mostly_zero_rows_follow_the_written_format(width, entries):
    row = [0] * width
    for position, number in entries:
        row[position % width] = number
    assert canonical_bytes([row]) == [reference_bytes(row)]


@given(st.lists(anything, min_size=1, max_size=4), st.lists(anything, min_size=1, max_size=4))
def test_different_rows_have_different_bytes(first, second):
    same = len(first) == len(second) and all(map(_same, first, second))
    assert (canonical_bytes([first]) == canonical_bytes([second])) == same


def _same(a, b):
    missing = [cell is None or (isinstance(cell, float) and math.isnan(cell)) for cell in (a, b)]
    return all(missing) if any(missing) else a == b
