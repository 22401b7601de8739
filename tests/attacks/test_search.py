"""The search for the first change, and the worst case on votes."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof import certify_votes
from poisonproof.attacks import votes_to_turn
from poisonproof.attacks.retraining import first_change, ladder


@pytest.mark.parametrize("first", [1, 2, 7, 8, 9, 50, 99])
def test_the_first_change_is_found_exactly(first: int) -> None:
    trace = first_change(lambda size: size >= first, radius=7, limit=100)
    assert trace.first == first
    assert trace.within(7) == (
        sum(size <= 7 for size in trace.tried),
        sum(size <= 7 and size >= first for size in trace.tried),
    )


def test_a_prediction_that_never_changes_is_tried_up_to_the_limit() -> None:
    trace = first_change(lambda _: False, radius=7, limit=100)
    assert trace.first is None
    assert trace.largest == 100
    assert {7, 8} <= set(trace.tried)


def test_the_radius_and_the_next_size_are_on_the_ladder() -> None:
    for radius in (0, 1, 6, 40):
        sizes = ladder(radius, 60)
        assert radius + 1 in sizes
        assert sizes == sorted(set(sizes))
        assert min(sizes) == 1
        assert max(sizes) == 60


@pytest.mark.parametrize("seed", range(30))
def test_one_vote_more_than_the_radius_turns_the_label(seed: int) -> None:
    votes = np.random.default_rng(seed).choice([-1, 0, 1, 1, 2], 31)
    certificates = certify_votes(votes[None, :], 3)
    goal = int(certificates.runner_up[0])
    assert votes_to_turn(votes, 3, goal) == certificates.radius[0] + 1
