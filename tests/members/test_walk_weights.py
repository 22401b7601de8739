"""Walk weights: the propagation of labels, a function of samples, one asked row at a time."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.similarity import neighbor_graph
from poisonproof.members.weights import WalkWeights

X, Y = load_digits(return_X_y=True)
KNOWN, ASKED = X[:1500], X[1500:]


@pytest.mark.parametrize("chance", [0.3, 0.9, 0.99, 0.999])
def test_weights_are_the_visits_of_walks_compared_with_chance(chance: float) -> None:
    weights = WalkWeights(12, chance).fit(KNOWN)
    graph = neighbor_graph(weights.near_).toarray()
    degrees = graph.sum(axis=1)
    begun = np.zeros((3, 1500))
    for row, asked in enumerate(ASKED[:3]):
        cosines = KNOWN @ asked / np.linalg.norm(KNOWN, axis=1)
        begun[row, np.argsort(-cosines, kind="stable")[:12]] = 1 / 12
    visits = begun @ np.linalg.inv(np.eye(1500) - chance * graph / degrees[:, None]) / degrees
    found = weights.integers(ASKED[:3]).astype(np.float64)
    expected = visits / visits.sum(axis=1, keepdims=True)
    found /= found.sum(axis=1, keepdims=True)
    assert np.abs(found - expected).max() < 1e-3 * expected.max()


def test_longer_walks_ask_more_rows() -> None:
    def largest(chance: float) -> Any:
        found = WalkWeights(12, chance).fit(KNOWN).integers(ASKED)
        return np.median(found.max(axis=1) / found.sum(axis=1))

    assert largest(0.5) > 2 * largest(0.9) > 4 * largest(0.99)


def test_the_weights_for_a_row_do_not_depend_on_the_rows_asked_with_it() -> None:
    weights = WalkWeights(12).fit(KNOWN)
    together = weights.integers(ASKED)
    for row in (0, 127, 128, 296):
        assert np.array_equal(weights.integers(ASKED[row : row + 1])[0], together[row])


def test_a_copy_has_the_same_weights_and_no_graph() -> None:
    weights = WalkWeights(12).fit(KNOWN)
    before = weights.integers(ASKED[:5])
    kept = pickle.dumps(weights)
    assert len(kept) < 1.2 * (weights.values_.nbytes + weights.near_.nbytes) + 20_000
    assert np.array_equal(pickle.loads(kept).integers(ASKED[:5]), before)


@pytest.mark.parametrize("known", [1, 2, 7])
def test_few_samples_are_all_neighbours(known: int) -> None:
    found = WalkWeights(30, 0.9).fit(X[:known]).integers(ASKED[:2])
    assert found.shape == (2, known)
    assert (found > 0).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"chance": 1.0},
        {"chance": -0.1},
        {"chance": "0.9"},
        {"chance": None},
        {"n_neighbors": 0},
        {"n_neighbors": 2.5},
        {"n_neighbors": "3"},
        {"n_neighbors": True},
    ],
)
def test_impossible_walks_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="n_neighbors is an integer of at least 1"):
        WalkWeights(**wrong).fit(KNOWN)


@pytest.mark.parametrize("device", ["nowhere", "cuda"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    torch = pytest.importorskip("torch")
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(InvalidInputError, match=f"cannot compute .* on device='{device}'"):
        WalkWeights(5, device=device).fit(KNOWN)
    assert WalkWeights(5, device="cpu").fit(KNOWN).near_.shape == (len(KNOWN), 6)
