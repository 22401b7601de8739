"""Appendix C: random subsets against disjoint partitions."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.baselines import (
    plot_poisoned_shares,
    poisoned_share_disjoint,
    poisoned_share_random,
)


def test_the_papers_example():
    assert round(float(poisoned_share_random(60000, 50, 200)), 3) == 0.154
    assert round(float(poisoned_share_disjoint(60000, 50, 200)), 3) == 0.167


@pytest.mark.parametrize(("m", "s"), [(10, 3), (25, 1), (8, 8)])
def test_random_subsets_are_counted_exactly(m, s):
    expected = [1 - comb(m - r, s) / comb(m, s) for r in range(m + 1)]
    assert poisoned_share_random(m, s, np.arange(m + 1)) == pytest.approx(expected)


def test_partitions_never_look_better_than_random_subsets_on_paper():
    flips = np.arange(0, 60001, 37)
    random = poisoned_share_random(60000, 50, flips)
    assert (poisoned_share_disjoint(60000, 50, flips) >= random - 1e-12).all()


def test_impossible_sizes_are_refused():
    with pytest.raises(InvalidInputError, match="1 <= s <= m"):
        poisoned_share_random(10, 11, 1)


def test_both_curves_are_drawn():
    pytest.importorskip("matplotlib")
    ax = plot_poisoned_shares(largest=100)
    assert [line.get_label() for line in ax.lines] == ["disjoint partitions", "random subsets"]
    assert ax.lines[0].get_ydata()[-1] == pytest.approx(100 * 100 * 50 / 60000)
