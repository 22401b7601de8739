"""Row votes on a CUDA device are those of NumPy; run with ``pytest -m gpu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier, WeightedVoteClassifier
from poisonproof.features.exact import Precision, exact_rows
from poisonproof.members.similarity import Neighborhood, nearest_rows
from poisonproof.members.weights import WalkWeights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

X, Y = load_digits(return_X_y=True)
MODELS: dict[str, Any] = {
    "neighbours": lambda device: NeighborVoteClassifier(
        threshold=0.9, classes=range(10), device=device
    ),
    "clusters": lambda device: ClusterVoteClassifier(
        assignment="one_to_one", classes=range(10), device=device
    ),
    "walks": lambda device: WeightedVoteClassifier(
        weights=WalkWeights(10, device=device), classes=range(10)
    ),
}


def sixty_thousand() -> Any:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 288))
    rows = centres[rng.integers(0, 40, 60_000)] + rng.normal(size=(60_000, 288))
    rows[5000:5100] = rows[3]  # equal cosines
    rows[70] = 0
    return rows


def test_near_rows_are_counted_alike() -> None:
    rows = sixty_thousand()
    here, there = (Neighborhood(0.45, device) for device in (None, "cuda"))
    known, asked, y = here.prepare(rows), here.prepare(rows[:1000] + 0.1), np.arange(60_000) % 10
    counts = here.count_by_class(asked, known, y, 10)
    assert 0 < counts.sum() < 1000 * 60_000
    assert np.array_equal(counts, there.count_by_class(asked, known, y, 10))


@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_nearest_rows_are_found_alike(precision: Precision) -> None:
    known = exact_rows(sixty_thousand(), precision)
    here, there = (nearest_rows(known[:600], known, 31, device) for device in (None, "cuda"))
    assert np.array_equal(here, there)


@pytest.mark.parametrize("name", MODELS)
def test_certificates_are_alike(name: str) -> None:
    here, there = (
        MODELS[name](device).fit(X[:1400], Y[:1400]).certify(X[1400:]) for device in (None, "cuda")
    )
    assert np.array_equal(here.labels, there.labels)
    assert np.array_equal(here.radius, there.radius)
