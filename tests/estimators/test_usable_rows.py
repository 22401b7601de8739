"""Which rows the members can take, looked at cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.usable_rows import usable_rows
from poisonproof.features import FixedScale

LARGEST = 2**1024 - 2**970 - 1  # one more rounds to infinity
CELLS: dict[str, Any] = {
    "number": 1.5,
    "text": "x",
    "bytes": b"x",
    "date": pd.Timestamp("2020-01-01"),
    "missing": None,
    "infinity": -np.inf,
    "long integer": 2**53 + 1,
    "negative long integer": -(2**80) - 1,
    "largest": LARGEST,
    "beyond float64": LARGEST + 1,
    "negative beyond float64": -LARGEST - 1,
}
NUMBERS = {"number", "long integer", "negative long integer", "largest"}
INFINITE = {"infinity", "beyond float64", "negative beyond float64"}
CASES = [
    pytest.param(NeighborVoteClassifier(), NUMBERS, id="compared as they are"),
    pytest.param(DPAClassifier(GaussianNB(), 5, features=FixedScale()), NUMBERS, id="fixed map"),
    pytest.param(
        DPAClassifier(HistGradientBoostingClassifier(), 5, features=FixedScale()),
        NUMBERS,
        id="fixed map, which takes no gaps",
    ),
    pytest.param(
        DPAClassifier(GaussianNB(), 5), set(CELLS) - INFINITE - {"missing"}, id="members' business"
    ),
    pytest.param(
        DPAClassifier(HistGradientBoostingClassifier(), 5),
        set(CELLS) - INFINITE,
        id="members' business, gaps taken",
    ),
]


@pytest.mark.parametrize(("classifier", "expected"), CASES)
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_every_cell_decides_about_its_own_row(
    classifier: Any, expected: set[str], column: int, container: Any
) -> None:
    rows = np.full((len(CELLS), 2), 2.5, dtype=object)
    rows[:, column] = list(CELLS.values())
    usable = usable_rows(classifier, container(rows))
    assert {name for name, good in zip(CELLS, usable, strict=True) if good} == expected


@pytest.mark.parametrize("kind", [np.int64, np.uint64, object])
def test_long_integers_are_numbers_in_every_type(kind: Any) -> None:
    rows = np.array([[2**53 + 1, 1], [2**62 + 1, 2]], dtype=kind)
    for container in (rows, pd.DataFrame(rows)):
        assert usable_rows(NeighborVoteClassifier(), container).all()
