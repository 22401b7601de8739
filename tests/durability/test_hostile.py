"""A file from a stranger is one clear error, or a model: nothing runs, is written or crashes."""

from __future__ import annotations

import pytest

from .hostile import Trials


@pytest.mark.parametrize(
    ("n", "names"),
    [
        (80, ["tree", "support vectors", "network"]),
        pytest.param(10_000, None, marks=pytest.mark.slow),
    ],
    ids=["some", "ten-thousand"],
)
@pytest.mark.timeout(7200)
def test_no_hostile_file_does_anything_but_raise(n: int, names: list[str] | None) -> None:
    trials = Trials(seed=1, names=names)
    assert trials.run(range(n)) == n
    assert not trials.failures
    refused = sum(n for (_, what), n in trials.counts.items() if what.endswith("Error"))
    assert 0.4 * n < refused < n
