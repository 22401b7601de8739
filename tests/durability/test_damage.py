"""A damaged store is an error each time: never a crash, wrong votes, or code that runs."""

from __future__ import annotations

import pytest

from .damage import Trials


@pytest.mark.parametrize(
    "n", [250, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "ten-thousand"]
)
@pytest.mark.timeout(900)
def test_every_damaged_store_is_refused(n: int) -> None:
    counts = Trials(seed=n).run(n)
    assert counts.total() == n
    assert sum(count for what, count in counts.items() if what.endswith(": error")) > 0.8 * n
