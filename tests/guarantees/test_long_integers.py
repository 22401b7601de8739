"""Integers that float64 rounds are numbers whatever type another row gives them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poisonproof import DPAClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.features import FixedScale
from poisonproof.members.closed_form import RidgeClassifier

RNG = np.random.default_rng(1)
K = 50
ROWS = (2**60 + RNG.integers(0, 2**20, (800, 64))).tolist()
LABELS = RNG.integers(0, 2, 800).tolist()
STRANGE: dict[str, Any] = {"a fraction": 0.5, "a text": "x", "a gap": None, "a giant": 2**1030}


@pytest.mark.parametrize("cell", list(STRANGE.values()), ids=list(STRANGE))
def test_a_row_of_another_type_leaves_mapped_rows_of_large_integers_alone(cell: Any) -> None:
    def fitted(rows: list[Any], labels: list[int]) -> DPAClassifier:
        classifier = DPAClassifier(
            RidgeClassifier(),
            K,
            classes=[0, 1],
            features=FixedScale(scale=2.0**60),
            invalid_rows="drop",
        )
        return classifier.fit(rows, labels)

    before = fitted(ROWS, LABELS)
    after = fitted([*ROWS, [cell] * 64], [*LABELS, 0])
    assert before.n_dropped_ == 0
    assert after.n_dropped_ == (cell != 0.5)
    changed = np.array(before.ensemble_.digests()) != after.ensemble_.digests()
    assert changed.sum() <= (cell == 0.5)


@pytest.mark.parametrize("cell", list(STRANGE.values()), ids=list(STRANGE))
def test_a_row_of_another_type_leaves_the_votes_of_large_integers_alone(cell: Any) -> None:
    rows = (2**54 + 2**52 * RNG.integers(0, 7, (400, 4)) + 1).tolist()
    labels = LABELS[:400]
    classifier = NeighborVoteClassifier(threshold=0.9999, classes=[0, 1], invalid_rows="drop")
    before = classifier.fit(rows, labels).counts(rows)
    after = classifier.fit([*rows, [cell] * 4], [*labels, 0]).counts(rows)
    assert classifier.n_dropped_ == (cell != 0.5)
    assert np.abs(after - before).sum(axis=1).max() <= (cell == 0.5)
