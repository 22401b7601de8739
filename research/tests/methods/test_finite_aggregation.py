"""Members that share buckets: the structure, the radii, and what d = 1 must give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods import shared_buckets as finite_aggregation
from poisonproof_research.methods.shared_buckets import (
    Spread,
    certify_finite_aggregation,
    certify_shared_runoff,
    make_spread,
)
from tests.certificates.oracle import plurality_types, true_radius


def realistic_votes(n, k, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_classes, (n, 1))
    knows = rng.random((n, k)) < rng.random((n, 1))
    return np.where(knows, truth, rng.integers(-1, n_classes, (n, k)))


def realistic_scores(n, k, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 8, (n, k, n_classes)).astype(np.float32)
    scores[np.arange(n), :, rng.integers(0, n_classes, n)] += rng.integers(0, 8, (n, 1))
    scores[rng.random((n, k)) < 0.03] = np.nan
    return scores


@pytest.mark.parametrize(("k", "degree"), [(1, 1), (7, 1), (50, 4), (3, 3), (1, 5)])
def test_buckets_and_members_serve_each_other_d_times(k, degree):
    spread = make_spread(k, degree, seed=3)
    members, buckets = spread.members_of_bucket, spread.buckets_of_member
    assert members.shape == buckets.shape == (k * degree, degree)
    assert all(len(set(row)) == degree for row in members.tolist())
    serves = {(b, j) for b, row in enumerate(members.tolist()) for j in row}
    trains = {(b, j) for j, row in enumerate(buckets.tolist()) for b in row}
    assert serves == trains
    assert (np.bincount(members.ravel()) == degree).all()


def test_offsets_depend_on_the_seed_and_never_change():
    assert make_spread(50, 4, seed=0).offsets == (64, 120, 52, 8)
    assert make_spread(50, 4, seed=1).offsets != make_spread(50, 4, seed=0).offsets


@pytest.mark.parametrize(
    ("k", "offsets"), [(0, (0,)), (2, ()), (2, (0, 0)), (2, (0, 4)), (2, (-1, 0)), (2.0, (0,))]
)
def test_a_spread_that_is_none_is_refused(k, offsets):
    with pytest.raises(InvalidInputError):
        Spread(k, offsets)


@pytest.mark.parametrize("target", [None, 0, 4])
@pytest.mark.parametrize(("n", "k", "n_classes"), [(400, 60, 6), (50, 300, 10), (50, 5, 1)])
def test_one_member_per_bucket_is_exactly_a_plurality_vote(n, k, n_classes, target):
    if target is not None and target >= n_classes:
        target = 0
    votes = realistic_votes(n, k, n_classes)
    plain = certify_votes(votes, n_classes, target=target)
    for spread in (make_spread(k, 1, seed=5), np.arange(k)[:, None]):
        shared = certify_finite_aggregation(votes, n_classes, spread, target=target)
        for name in ("labels", "radius", "counts"):
            np.testing.assert_array_equal(getattr(shared, name), getattr(plain, name))
        if target is None:
            np.testing.assert_array_equal(shared.runner_up, plain.runner_up)


@pytest.mark.parametrize("target", [None, 2])
def test_one_member_per_bucket_is_exactly_a_runoff(target):
    scores = realistic_scores(80, 40, 6)
    plain = certify_scores(scores, target=target)
    shared = certify_shared_runoff(scores, make_spread(40, 1), target=target)
    np.testing.assert_array_equal(shared.radius, plain.radius)
    assert shared.method == "runoff_finite_aggregation"


def strongest_buckets(votes, members, label, rival, size):
    """Own buckets one by one, each time the one whose untouched members weigh most."""
    weights = 1 + (votes == label).astype(int) - (votes == rival)
    owned = np.zeros(len(votes), dtype=bool)
    for _ in range(size):
        best = np.where(owned[members], 0, weights[members]).sum(axis=1).argmax()
        owned[members[best]] = True
    return owned


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["insert_delete", "replace"]))
def test_no_attack_within_the_radius_changes_a_real_vote(seed, threat):
    spread = make_spread(50, 4, seed % 7)
    votes = realistic_votes(1, 200, 10, seed)
    before = certify_finite_aggregation(votes, 10, spread, threat)
    label, size = int(before.labels[0]), int(before.radius[0]) * before.threat.touches
    after = []
    for rival in set(range(10)) - {label}:
        owned = strongest_buckets(votes[0], spread.members_of_bucket, label, rival, size)
        after.append(np.where(owned, rival, votes[0]))
    assert set(certify_votes(np.stack(after), 10).labels) == {label}


def test_an_attacker_of_a_few_buckets_more_than_the_radius_succeeds():
    spread = make_spread(50, 4)
    votes = realistic_votes(200, 200, 10)
    before = certify_finite_aggregation(votes, 10, spread)
    fell = 0
    for row, label, rival, radius in zip(
        votes, before.labels, before.runner_up, before.radius, strict=True
    ):
        owned = strongest_buckets(row, spread.members_of_bucket, label, rival, int(radius) + 1)
        fell += certify_votes(np.where(owned, rival, row)[None], 10).labels[0] != label
    assert fell >= 160  # overlapping buckets leave the bound loose on some rows


def test_blocks_of_rows_do_not_matter(monkeypatch):
    spread = make_spread(10, 3)
    votes, scores = realistic_votes(40, 30, 5), realistic_scores(40, 30, 5)
    whole = certify_finite_aggregation(votes, 5, spread), certify_shared_runoff(scores, spread)
    monkeypatch.setattr(finite_aggregation, "_BLOCK", 3 * 30 * 5)
    pieces = certify_finite_aggregation(votes, 5, spread), certify_shared_runoff(scores, spread)
    assert all(a.equals(b) for a, b in zip(whole, pieces, strict=True))


def test_many_members_per_bucket_do_not_overflow():
    members = np.tile(np.arange(6000), (3, 1))
    votes = np.zeros((2, 6000), dtype=int)
    assert certify_finite_aggregation(votes, 3, members).radius.tolist() == [0, 0]


@pytest.mark.parametrize(
    "membership", [[[0, 5]], [[-1]], [[0, 0]], [0, 1], [[]], [[0.5]], np.zeros((0, 1), int)]
)
def test_a_membership_that_names_no_members_is_refused(membership):
    with pytest.raises(InvalidInputError):
        certify_finite_aggregation([[0, 1, 1, 0, 1]], 2, membership)


@pytest.mark.parametrize("n_members", [7, 9, 16])
def test_a_spread_of_another_number_of_members_is_refused(n_members):
    """Unserved members would count as beyond reach, and radii would be too large."""
    spread = make_spread(4, 2)
    with pytest.raises(InvalidInputError, match="8 members"):
        certify_finite_aggregation(np.zeros((1, n_members), int), 2, spread)
    with pytest.raises(InvalidInputError, match="8 members"):
        certify_shared_runoff(np.zeros((1, n_members, 3)), spread)


def test_buckets_that_share_all_members_are_bounded_but_not_exact():
    votes, membership = np.array([[0, 0, 0, 0]]), np.array([[0, 1], [0, 1]])
    claimed = int(certify_finite_aggregation(votes, 2, membership).radius[0])
    truth = true_radius(plurality_types(2), votes[0] + 1, membership, 2)
    assert (claimed, truth) == (1, 2)
