"""Coded votes are the same votes, in fewer bytes than deflate needs."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.reproduction.result import ABSTAINED, decode_votes, encode_votes
from poisonproof_research.reproduction.whole_files import npz_bytes

SHAPES = st.tuples(st.integers(0, 6), st.integers(0, 40))
VOTES = st.sampled_from([0, 1, 2, 3, 42, ABSTAINED])


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint8, SHAPES, elements=VOTES))
def test_decoding_gives_the_same_votes(votes):
    decoded = decode_votes(encode_votes(votes, 43))
    assert decoded.shape == votes.shape or votes.size == 0
    assert np.array_equal(decoded.ravel(), votes.ravel())


def realistic(n: int, k: int, base: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(10, 0.3), n) * (1 - base)
    shares[np.arange(n), rng.integers(0, 10, n)] += base
    limits = shares.cumsum(axis=1)[:, np.newaxis, :-1]
    return (rng.random((n, k, 1)) > limits).sum(axis=2).astype(np.uint8)


@pytest.mark.parametrize(("k", "base"), [(1200, 0.7), (3000, 0.4)])
def test_realistic_votes_come_back_and_take_less_than_deflate_needs(k, base):
    votes = realistic(500, k, base)
    votes[::7, ::11] = ABSTAINED
    code = encode_votes(votes, 10)
    assert np.array_equal(decode_votes(code), votes)
    assert len(npz_bytes(code)) < 0.85 * len(zlib.compress(votes.tobytes(), 9))


def test_unanimous_rows_cost_no_words():
    code = encode_votes(np.full((5, 1000), 3, dtype=np.uint8), 10)
    assert len(code["words"]) == 0
    assert (decode_votes(code) == 3).all()


@pytest.mark.parametrize("name", ["counts", "lengths", "words", "states"])
def test_a_damaged_code_is_refused_or_differs(name):
    votes = realistic(50, 200, 0.5)
    code = encode_votes(votes, 10)
    damaged = {**code, name: code[name][:-1]}
    with pytest.raises(InvalidInputError, match="damaged"):
        decode_votes(damaged)


def test_votes_outside_the_classes_are_refused():
    with pytest.raises(InvalidInputError, match="below n_classes=3"):
        encode_votes(np.array([[3]], dtype=np.uint8), 3)
