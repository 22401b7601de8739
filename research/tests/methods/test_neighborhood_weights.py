"""Neighbourhoods along the graph: who is near by many short ways, one asked row at a time."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.datasets import load_digits, make_moons

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import exact_rows
from poisonproof.members.similarity import nearest_rows, neighbor_graph
from poisonproof_research.methods.neighborhood_weights import NeighborhoodWeights

X, Y = load_digits(return_X_y=True)
KNOWN, ASKED = X[:1500], X[1500:]


def test_voters_are_the_nearest_by_a_diffusion_of_the_chosen_length() -> None:
    weights = NeighborhoodWeights(100, n_neighbors=12, n_coordinates=40, breadth=15.0).fit(KNOWN)
    rows = exact_rows(KNOWN, "single")
    near = nearest_rows(rows, rows, 13)
    graph = neighbor_graph(near).toarray()
    degrees = graph.sum(axis=1)
    values, vectors = np.linalg.eigh(graph / np.sqrt(degrees[:, None] * degrees))
    values, vectors = values[-40:].clip(0, 1), vectors[:, -40:]
    power = brentq(lambda t: (values ** (2 * t)).sum() - 15.0, 0, 1e4)
    places = vectors * values**power / np.sqrt(degrees)[:, None]
    asked_near = nearest_rows(exact_rows(ASKED[:20], "single"), rows, 12)
    asked = places[asked_near].mean(axis=1)
    cosines = (asked / np.linalg.norm(asked, axis=1, keepdims=True)) @ (
        places / np.linalg.norm(places, axis=1, keepdims=True)
    ).T
    found = weights.integers(ASKED[:20]).astype(bool)
    assert (found.sum(axis=1) == 100).all()
    for row in range(20):
        edge = np.sort(cosines[row])[-100]
        assert (cosines[row][found[row]] >= edge - 1e-5).all()


def test_ways_along_the_graph_count_and_not_the_straight_one() -> None:
    points, side = make_moons(600, noise=0.03, random_state=0)
    lifted = np.c_[points - points.mean(axis=0), np.ones(600)]
    known, asked = lifted[:500], lifted[500:]
    weights = NeighborhoodWeights(150, n_neighbors=10, n_coordinates=20, breadth=4.0).fit(known)
    straight = nearest_rows(exact_rows(asked), exact_rows(known), 150)
    same = side[:500] == side[500:, None]
    assert same[weights.integers(asked).astype(bool)].mean() > 0.99
    assert np.take_along_axis(same, straight, axis=1).mean() < 0.9


def test_the_weights_for_a_row_do_not_depend_on_the_rows_asked_with_it() -> None:
    weights = NeighborhoodWeights(80, n_neighbors=12).fit(KNOWN)
    together = weights.integers(ASKED)
    for row in (0, 255, 256, 296):
        assert np.array_equal(weights.integers(ASKED[row : row + 1])[0], together[row])


def test_known_neighbours_need_not_be_sought_again() -> None:
    rows = exact_rows(KNOWN, "single")
    near = nearest_rows(rows, rows, 13)
    asked_near = nearest_rows(exact_rows(ASKED[:5], "single"), rows, 12)
    again = NeighborhoodWeights(80, n_neighbors=12).fit(KNOWN, near=near)
    plain = NeighborhoodWeights(80, n_neighbors=12).fit(KNOWN)
    found = again.integers(ASKED[:5], near=asked_near)
    assert np.array_equal(found, plain.integers(ASKED[:5]))


def test_a_copy_has_the_same_weights() -> None:
    weights = NeighborhoodWeights(80, n_neighbors=12).fit(KNOWN)
    before = weights.integers(ASKED[:5])
    assert np.array_equal(pickle.loads(pickle.dumps(weights)).integers(ASKED[:5]), before)


@pytest.mark.parametrize("known", [1, 2, 7])
def test_few_samples_all_vote(known: int) -> None:
    found = NeighborhoodWeights(30).fit(X[:known]).integers(ASKED[:2])
    assert np.array_equal(found, np.ones((2, known)))


def test_parts_that_nothing_joins_stay_apart() -> None:
    rng = np.random.default_rng(0)
    corners = np.repeat(np.eye(30) * 100, 5, axis=0) + rng.random((150, 30))
    weights = NeighborhoodWeights(5, n_neighbors=4, breadth=3.0).fit(corners)
    found = weights.integers(np.eye(30) * 100 + 0.5)
    assert np.array_equal(found, np.repeat(np.eye(30, dtype=np.int32), 5, axis=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_votes": 0},
        {"n_votes": 2.5},
        {"n_neighbors": True},
        {"n_coordinates": "3"},
        {"breadth": 0.0},
        {"breadth": None},
    ],
)
def test_impossible_neighbourhoods_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="n_neighbors and n_coordinates are integers"):
        NeighborhoodWeights(**wrong).fit(KNOWN)
