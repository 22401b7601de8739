"""A cell that makes a learner ask for petabytes is the matter of its own member."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

from poisonproof import DPAClassifier
from poisonproof.exceptions import MemberWarning

rng = np.random.default_rng(0)
X = rng.integers(0, 5, (400, 6))
y = (X[:, 0] > 2).astype(int)


def model() -> DPAClassifier:
    return DPAClassifier(CategoricalNB(min_categories=6), 10, classes=[0, 1])


def test_a_request_that_no_machine_can_grant_silences_one_member() -> None:
    clean = model().fit(X, y)
    cells = X.copy()
    cells[7, 2] = 10**15
    with pytest.warns(MemberWarning, match=r"largest value is 1e\+15, in column 2"):
        poisoned = model().fit(cells, y)
    assert len(poisoned.failures_) == 1
    touched = set(poisoned.failures_)
    touched |= {
        index
        for index, (a, b) in enumerate(
            zip(clean.partition_digests_, poisoned.partition_digests_, strict=True)
        )
        if a != b
    }
    assert len(touched) <= 2
    changed = {
        index
        for index, (a, b) in enumerate(
            zip(clean.ensemble_.digests(), poisoned.ensemble_.digests(), strict=True)
        )
        if a != b
    }
    assert changed <= touched


def test_a_request_that_another_machine_might_grant_still_stops_the_fit() -> None:
    class Hungry(CategoricalNB):
        def fit(self, X: object, y: object, sample_weight: object = None) -> Hungry:
            error = np._core._exceptions._ArrayMemoryError((2**40,), np.dtype("u1"))  # type: ignore[attr-defined]
            raise error

    with pytest.raises(MemoryError) as caught:
        DPAClassifier(Hungry(), 10, classes=[0, 1]).fit(X, y)
    assert "partition 0 (its largest value is 4" in caught.value.__notes__[0]
