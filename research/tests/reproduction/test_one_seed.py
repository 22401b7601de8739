"""Effect of one shared seed on a row: the arithmetic of experiments/one_seed."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "one_seed" / "summarise.py"


@pytest.fixture(scope="module")
def variance_parts():
    return runpy.run_path(str(SCRIPT))["variance_parts"]


def test_a_seed_that_moves_all_members_is_told_from_noise(variance_parts):
    rng = np.random.default_rng(0)
    seeds, members, noise = 1.5, 6.0, 3.0
    table = (
        rng.normal(0, seeds, (400, 1))
        + rng.normal(0, members, (1, 100))
        + rng.normal(0, noise, (400, 100))
    )
    between, rest = variance_parts(table)
    assert between == pytest.approx(seeds**2, rel=0.2)
    assert rest == pytest.approx(noise**2, rel=0.05)


def test_members_that_differ_for_themselves_are_no_seed_effect(variance_parts):
    rng = np.random.default_rng(1)
    between, _ = variance_parts(rng.normal(0, 6, (1, 50)) + rng.normal(0, 3, (8, 50)))
    assert between < 0.5
