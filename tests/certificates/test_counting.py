"""Counting is the same in any container and any piece size, and refuses what is no vote."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from poisonproof.certificates import certify_votes, count_votes
from poisonproof.exceptions import InvalidVotesError

counting = sys.modules["poisonproof.certificates.plurality"]


def counted_plainly(votes, n_classes):
    return np.stack([(votes == label).sum(axis=1) for label in range(n_classes)], axis=1)


@pytest.mark.parametrize("n_classes", [1, 2, 10, 20, 40, 300])
@pytest.mark.parametrize("k", [1, 7, 50, 2040, 2041, 4100])
def test_counts_equal_a_plain_count_for_every_way_of_counting(n_classes, k):
    votes = np.random.default_rng(k).integers(-1, n_classes, (37, k))
    np.testing.assert_array_equal(count_votes(votes, n_classes), counted_plainly(votes, n_classes))


@pytest.mark.parametrize("k", [2040, 2048, 4080, 5000])
@pytest.mark.parametrize("label", [0, 2, -1])
def test_unanimous_votes_do_not_overflow_the_byte_lanes(k, label):
    counts = count_votes(np.full((3, k), label, dtype=np.int8), 3)
    expected = [k if c == label else 0 for c in range(3)]
    np.testing.assert_array_equal(counts, [expected] * 3)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", ">i2", ">i8"])
def test_certificates_do_not_depend_on_the_dtype(dtype):
    votes = np.random.default_rng(0).integers(0, 10, (200, 1500))
    assert certify_votes(votes.astype(dtype), 10).equals(certify_votes(votes, 10))


@pytest.mark.parametrize(
    "rearrange",
    [
        np.asfortranarray,
        lambda votes: np.repeat(votes, 2, axis=1)[:, ::2],
        lambda votes: votes[::-1, ::-1].copy()[::-1, ::-1],
        lambda votes: votes.tolist(),
        lambda votes: pytest.importorskip("pandas").DataFrame(votes),
    ],
    ids=["fortran", "strided", "negative strides", "lists", "DataFrame"],
)
def test_certificates_do_not_depend_on_the_container(rearrange):
    votes = np.random.default_rng(0).integers(-1, 10, (50, 1300))
    assert certify_votes(rearrange(votes), 10).equals(certify_votes(votes, 10))


def test_a_memory_map_is_certified_like_an_array(tmp_path):
    votes = np.random.default_rng(0).integers(-1, 10, (300, 400), dtype=np.int16)
    np.save(tmp_path / "votes.npy", votes)
    mapped = np.load(tmp_path / "votes.npy", mmap_mode="r")
    assert certify_votes(mapped, 10).equals(certify_votes(votes, 10))


@settings(max_examples=100, deadline=None)
@given(
    votes=arrays(
        np.int8, st.tuples(st.integers(0, 9), st.integers(1, 90)), elements=st.integers(-1, 4)
    ),
    tile=st.integers(1, 200),
    block=st.integers(1, 40),
)
def test_certificates_do_not_depend_on_the_size_of_the_pieces(votes, tile, block):
    whole = certify_votes(votes, 5)
    aimed = certify_votes(votes, 5, target=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_TILE", tile)
        patch.setattr(counting, "_BLOCK", block)
        assert certify_votes(votes, 5).equals(whole)
        assert certify_votes(votes, 5, target=3).equals(aimed)


def test_extra_memory_stays_below_the_size_of_the_votes():
    votes = np.random.default_rng(0).integers(0, 10, (5_000, 2_000), dtype=np.uint8)
    certify_votes(votes[:10], 10)
    tracemalloc.start()
    certify_votes(votes, 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < votes.nbytes


def test_no_rows_give_empty_certificates():
    certificates = certify_votes(np.empty((0, 5), dtype=np.int16), 3)
    assert len(certificates) == 0
    assert certificates.counts.shape == (0, 3)
    assert "0 predictions" in str(certificates)


def test_a_row_of_abstentions_predicts_label_0_with_radius_0():
    certificates = certify_votes([[-1, -1, -1]], 3)
    assert certificates.labels.tolist() == [0]
    assert certificates.radius.tolist() == [0]
    assert certificates.counts.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (np.array([[0, 7]]), r"votes\[0, 1\] is 7.*0 to 2"),
        (np.array([[0, 1], [1, -2]]), r"votes\[1, 1\] is -2"),
        (np.array([[0, 1], [1, 255]], dtype=np.uint8), r"votes\[1, 1\] is 255"),
        (np.array([[2**64 - 1]], dtype=np.uint64), r"votes\[0, 0\] is 18446744073709551615"),
        (np.array([[0.5, 1.0]]), r"integers.*float64"),
        (np.array([[0.0, np.nan]]), "integers.*float64"),
        (np.array([[0.0, 1.0]]), r"float64.*certify_scores"),
        (np.array([[True, False]]), "dtype bool"),
        (np.array([[0, None]], dtype=object), "dtype object"),
        (np.array([["0", "1"]]), "integers"),
        (np.array([0, 1]), r"two dimensions.*\(2,\)"),
        (np.zeros((2, 2, 2), dtype=int), "two dimensions"),
        (np.empty((3, 0), dtype=int), "at least one column"),
        ([[0, 1], [0]], "rectangle"),
        (np.ma.masked_array([[0, 1]], mask=[[True, False]]), "masked"),
        (np.broadcast_to(np.int8(0), (1, 2**31)), "2,147,483,648 members"),
    ],
)
def test_what_is_no_vote_is_refused_by_name(votes, message):
    with pytest.raises(InvalidVotesError, match=message):
        certify_votes(votes, 3)


@pytest.mark.parametrize("k", [4, 3000])
def test_the_first_bad_vote_in_reading_order_is_named(k):
    votes = np.zeros((600, k), dtype=np.int16)
    votes[510, k - 1] = -3
    votes[511, 0] = 9
    with pytest.raises(InvalidVotesError, match=rf"votes\[510, {k - 1}\] is -3"):
        certify_votes(votes, 3)


@pytest.mark.parametrize("n_classes", [0, -1, 2.0, True, "3", None])
def test_a_number_of_classes_that_is_none_is_refused(n_classes):
    with pytest.raises(InvalidVotesError, match="n_classes"):
        certify_votes([[0]], n_classes)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "target is 3.*0 to 2"),
        (-1, "target is -1"),
        ([0, 5], r"target\[1\] is 5"),
        ([0, 1, 2], r"one per row of votes \(2\).*\(3,\)"),
        (1.0, "class index"),
        (True, "class index"),
        ("1", "class index"),
    ],
)
def test_a_target_that_is_no_class_index_is_refused(target, message):
    with pytest.raises(ValueError, match=message):
        certify_votes([[0, 1], [1, 1]], 3, target=target)
