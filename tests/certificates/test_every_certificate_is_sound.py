"""No certificate claims more than exhaustive attack allows, and the exact ones claim no less."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from .random_cases import CASES, EXACT

ROOT = Path(__file__).parents[2]


def check(name: str, n_cases: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = [CASES[name](rng) for _ in range(n_cases)]
    assert not any(outcome.unsound for outcome in outcomes)
    tight = sum(outcome.claimed == outcome.truth for outcome in outcomes)
    assert tight == n_cases if name in EXACT else tight >= 0.9 * n_cases


@pytest.mark.parametrize("name", CASES)
def test_random_small_cases(name):
    check(name, 500, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_ten_thousand_random_small_cases(name):
    check(name, 10_000, seed=1)


def test_the_committed_evidence_covers_every_certificate_and_the_page_says_so():
    report = json.loads((ROOT / "benchmarks/results/certificates.json").read_text())["cases"]
    found = {result["certificate"]: result for result in report["results"]}
    assert set(found) >= set(CASES)
    page = (ROOT / "docs/theorems.md").read_text()
    for name, result in found.items():
        assert result["cases"] >= 10_000
        assert result["unsound"] == 0
        assert result["tight"] == 1 or name not in EXACT
        line = f"| {name} | {result['cases']:,} | 0 | {100 * result['tight']:.2f} % |"
        assert line in page or f"| {name} |" not in page
    assert page.count(" | 10,000 | 0 | ") == 23
