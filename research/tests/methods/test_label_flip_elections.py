"""Flips counted within members, against every way to flip labels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from poisonproof.certificates import certify_votes, make_threat
from poisonproof.certificates.label_flips import NEVER, certify_one_member, fewest_flips
from poisonproof_research.methods.label_flip_elections import (
    certify_label_flips,
    cheapest_election,
    flips_to_overtake,
)
from tests.certificates.flip_oracle import flips_by_winner, labelings, some_members, true_radius

CASES = 10_000
FLIPS = make_threat("label_flip")


def scores(weights: Any, labels: Any, n_classes: int) -> Any:
    """Scores of many labelings, shape (labelings, C)."""
    return np.stack([(weights * (labels == c)).sum(axis=-1) for c in range(n_classes)], axis=-1)


def test_a_member_changes_its_vote_at_exactly_its_smallest_price() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES // 100):
        n_classes, m = int(rng.integers(2, 4)), int(rng.integers(1, 6))
        weights, y = rng.integers(-4, 7, (100, m)), rng.integers(0, n_classes, m)
        votes, prices = flips_to_overtake(weights, y, n_classes)
        every = labelings(m, n_classes)
        found = scores(weights[:, None], every, n_classes)  # (100, labelings, C)
        flips = (every != y).sum(axis=1)
        assert np.array_equal(votes, scores(weights, y, n_classes).argmax(axis=1))
        for label in range(n_classes):
            own = np.take_along_axis(found, votes[:, None, None], axis=2)[:, :, 0]
            behind = own - found[:, :, label] + (label > votes)[:, None] <= 0
            assert np.array_equal(prices[:, label], np.where(behind, flips, NEVER).min(axis=1))
        changed = np.where(found.argmax(axis=2) != votes[:, None], flips, NEVER).min(axis=1)
        np.put_along_axis(prices, votes[:, None], NEVER, axis=1)
        assert np.array_equal(prices.min(axis=1), changed)


def test_the_knapsack_finds_the_smallest_total_price() -> None:
    rng = np.random.default_rng(1)
    n, k = CASES, 5
    single = rng.integers(1, 9, (n, k))
    double = single + rng.integers(0, 9, (n, k))
    double[rng.random((n, k)) < 0.3] = NEVER
    single[rng.random((n, k)) < 0.1] = NEVER
    double = np.maximum(double, single)
    steps = rng.integers(1, 8, n)
    best = np.full(n, NEVER)
    for choice in product(range(3), repeat=k):
        price = sum(
            (np.zeros(n, int), single[:, i], double[:, i])[taken] for i, taken in enumerate(choice)
        )
        best = np.where(sum(choice) >= steps, np.minimum(best, price), best)
    assert np.array_equal(cheapest_election(single, double, steps), best)


def election(parts: list[tuple[Any, Any]], n_classes: int) -> tuple[Any, Any]:
    members = [flips_to_overtake(weights, y, n_classes) for weights, y in parts]
    votes = np.stack([votes for votes, _ in members], axis=1)
    return votes, np.stack([prices for _, prices in members], axis=1)


def test_no_smaller_attack_on_all_labels_exists() -> None:
    """Against no target either; and the votes alone prove no larger radius."""
    rng = np.random.default_rng(2)
    exact = []
    for _ in range(CASES // 10):
        members, n_classes = some_members(rng, int(rng.integers(1, 6)), most_rows=4)
        n_rows = sum(len(y) for _, y in members)
        votes, prices = election([(weights[None], y) for weights, y in members], n_classes)
        flips = flips_by_winner(members, n_classes)
        for target in (None, *range(n_classes)):
            (radius,) = certify_label_flips(votes, prices, n_rows, FLIPS, target).radius
            plain = certify_votes(votes, n_classes, "label_flip", target)
            truth = true_radius(flips, n_rows, target)
            assert plain.radius[0] <= radius <= truth
            if target is None:
                exact.append(radius == truth)
    assert np.mean(exact) > 0.99


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_the_radius_is_never_below_theorem_2(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    parts = [
        (
            rng.integers(-40, 100, (200, size)),
            rng.integers(0, n_classes, size) * rng.integers(0, 2, size),
        )
        for size in rng.integers(0, 30, 60)
    ]
    votes, prices = election(parts, n_classes)
    certificates = certify_label_flips(votes, prices, 10_000, FLIPS)
    plain = certify_votes(votes, n_classes, "label_flip")
    assert np.array_equal(certificates.labels, plain.labels)
    assert (certificates.radius >= plain.radius).all()
    assert (certificates.radius > plain.radius).any()


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_a_targeted_radius_is_never_below_that_of_the_votes(n_classes: int) -> None:
    """Labels are mixed, so that several of them are ahead of the target."""
    rng = np.random.default_rng(n_classes)
    parts = [
        (rng.integers(-4, 10, (200, size)), rng.integers(0, n_classes, size))
        for size in rng.integers(0, 30, 60)
    ]
    votes, prices = election(parts, n_classes)
    for target in range(n_classes):
        aimed = certify_label_flips(votes, prices, 10_000, FLIPS, target)
        plain = certify_votes(votes, n_classes, "label_flip", target)
        assert (aimed.radius >= plain.radius).all()


def test_a_targeted_radius_is_at_least_the_untargeted_one() -> None:
    rng = np.random.default_rng(5)
    parts = [(rng.integers(-4, 9, (50, 6)), rng.integers(0, 3, 6)) for _ in range(9)]
    votes, prices = election(parts, 3)
    plain = certify_label_flips(votes, prices, 54, FLIPS)
    for target in range(3):
        aimed = certify_label_flips(votes, prices, 54, FLIPS, target)
        here = plain.labels == target
        assert (aimed.radius[here] == -1).all()
        assert (aimed.radius[~here] >= plain.radius[~here]).all()


@pytest.mark.parametrize(
    ("n_classes", "m", "top"), [(2, 3, 4), (3, 6, 3), (5, 40, 50), (43, 90, 9)]
)
def test_the_fewest_flips_are_the_smallest_price_of_any_rival(
    n_classes: int, m: int, top: int
) -> None:
    rng = np.random.default_rng(m)
    for _ in range(25):
        weights, y = rng.integers(-top // 2, top, (100, m)), rng.integers(0, n_classes, m)
        votes, rivals, prices = fewest_flips(weights, y, n_classes)
        expected, every = flips_to_overtake(weights, y, n_classes)
        assert np.array_equal(votes, expected)
        np.put_along_axis(every, votes[:, None], NEVER, axis=1)
        assert np.array_equal(prices, every.min(axis=1))
        assert np.array_equal(np.take_along_axis(every, rivals[:, None], axis=1)[:, 0], prices)
        assert (rivals != votes).all()


def test_certificates_are_those_of_an_election_with_one_member() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 7, 200)
    weights = rng.integers(-9, 20, (400, 200)) + 15 * (y == rng.integers(0, 7, (400, 1)))
    found = certify_one_member(*fewest_flips(weights, y, 7), 7, 200, FLIPS)
    votes, prices = flips_to_overtake(weights, y, 7)
    expected = certify_label_flips(votes[:, None], prices[:, None], 200, FLIPS)
    assert np.array_equal(found.radius, expected.radius)
    assert np.array_equal(found.labels, expected.labels)
    assert found.radius.max() > 5
