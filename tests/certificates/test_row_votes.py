"""Votes of single rows against every way to add and take away votes."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from poisonproof.certificates.plurality import certify_row_votes
from poisonproof.exceptions import GuaranteeError, InvalidVotesError

CASES = 10_000


@cache
def elections(n_classes: int) -> tuple[Any, Any]:
    """All small counts and their winners."""
    counts = np.array(list(product(range(9), repeat=n_classes)))
    return counts, counts.argmax(axis=1)


def cost(counts: Any, before: Any, threat: str) -> Any:
    """Rows an attacker must act on to turn one set of counts into others."""
    more = np.maximum(counts - before, 0).sum(axis=1)
    less = np.maximum(before - counts, 0).sum(axis=1)
    if threat == "insert_delete":
        return more + less
    # A flip moves a vote from label to label; a replaced row may also come from, or go to, those
    # that do not vote.
    return np.where(more == less, more, 99) if threat == "label_flip" else np.maximum(more, less)


@pytest.mark.parametrize("threat", ["insert_delete", "label_flip", "replace"])
@pytest.mark.parametrize("targeted", [False, True])
def test_the_radius_equals_the_exhaustive_attack(threat: str, targeted: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES // 2):
        n_classes = int(rng.integers(2, 4))
        before = rng.integers(0, 5, n_classes)
        target = int(rng.integers(n_classes)) if targeted else None
        certificate = certify_row_votes([before], 100, threat, target)
        counts, winners = elections(n_classes)
        hit = winners != before.argmax() if target is None else winners == target
        attack = int(cost(counts[hit], before, threat).min())
        if attack == 99:  # flips alone cannot do it: nobody votes
            continue
        assert certificate.radius[0] == attack - 1, (before, target)


def test_insertions_and_deletions_count_the_whole_gap() -> None:
    certificates = certify_row_votes([[9, 2, 2], [2, 9, 2]], 20)
    assert certificates.radius.tolist() == [7, 6]
    assert certificates.method == "row_votes"


def test_other_units_than_rows_are_refused() -> None:
    with pytest.raises(GuaranteeError, match="in rows"):
        certify_row_votes([[1, 0]], 1, "insert_delete/group")


def test_counts_that_no_training_set_has_are_refused() -> None:
    with pytest.raises(InvalidVotesError, match="n_members=3"):
        certify_row_votes([[2, 2]], 3)
    with pytest.raises(InvalidVotesError, match="integers"):
        certify_row_votes([[0.5, 2.0]], 3)
