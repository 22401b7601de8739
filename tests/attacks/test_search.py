"""The search for the first change."""

from __future__ import annotations

import pytest

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
    assert max(trace.tried) == 100
    assert {7, 8} <= set(trace.tried)


def test_the_radius_and_the_next_size_are_on_the_ladder() -> None:
    for radius in (0, 1, 6, 40):
        sizes = ladder(radius, 60)
        assert radius + 1 in sizes
        assert sizes == sorted(set(sizes))
        assert min(sizes) == 1
        assert max(sizes) == 60
