"""One member on all rows: the same prices as among few rows, and no cheaper attack."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof.certificates import make_threat
from poisonproof.certificates.label_flips import (
    NEVER,
    certify_label_flips,
    certify_one_member,
    fewest_flips,
    flips_to_overtake,
)
from poisonproof.certificates.threats import parse_threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError

FLIPS = make_threat("label_flip")


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


def test_flips_at_the_radius_are_survived_and_one_more_changes_the_vote() -> None:
    """At real shapes: the attack that the price stands for is carried out."""
    rng = np.random.default_rng(1)
    n_classes, m = 43, 20_000
    y = rng.integers(0, n_classes, m)
    weights = rng.integers(-3000, 3000, (20, m)) + 400 * (y == rng.integers(0, 43, (20, 1)))
    votes, rivals, prices = fewest_flips(weights, y, n_classes)
    for w, vote, rival, price in zip(weights, votes, rivals, prices, strict=True):
        gain = np.abs(w) + w * ((y == vote).astype(int) - (y == rival))
        for flips in (price - 1, price):
            changed = y.copy()
            rows = np.argsort(-gain, kind="stable")[:flips]
            changed[rows] = np.where(w[rows] > 0, rival, vote)
            scores = [int(w[changed == label].sum()) for label in range(n_classes)]
            assert (int(np.argmax(scores)) == vote) == (flips < price)


def test_one_class_or_no_rows_are_refused_in_words() -> None:
    with pytest.raises(InvalidInputError, match="two classes"):
        fewest_flips(np.ones((1, 2), int), np.zeros(2, int), 1)


def test_weights_that_would_overflow_are_refused_and_the_largest_are_counted_right() -> None:
    y = np.array([0, 1])
    with pytest.raises(InvalidInputError, match="fewer bits"):
        fewest_flips(np.array([[2**29, 2**29]]), y, 2)
    _, _, prices = fewest_flips(np.array([[2**30 - 2, 1]]), y, 2)
    assert prices.tolist() == [1]


@pytest.mark.parametrize(
    "weights",
    [
        np.array([[2**62, 2**62, 1]]),  # add up to -2^63
        np.array([[-(2**63), 0, 1]]),  # its own absolute value
        np.array([[2**64 - 1, 0, 2]], dtype=np.uint64),  # -1 as int64
    ],
)
def test_weights_whose_sum_wraps_around_are_refused(weights: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="fewer bits"):
        fewest_flips(weights, np.array([0, 0, 1]), 2)


@pytest.mark.parametrize("weights", [[[0.9, 0.8, 1.5]], [[np.nan, 1.0, 1.0]], [1, 2, 3], [[1, 2]]])
def test_weights_that_are_no_integers_per_label_are_refused(weights: list[object]) -> None:
    with pytest.raises(InvalidInputError, match=r"integers of shape \(n, 3\)"):
        fewest_flips(np.array(weights), np.array([0, 0, 1]), 2)


@pytest.mark.parametrize("y", [[0, 0, 2], [0, 0, -1], [0.0, 0.0, 1.0]])
def test_labels_outside_the_classes_are_refused(y: list[float]) -> None:
    with pytest.raises(InvalidInputError, match="Labels are integers from 0 to 1"):
        fewest_flips(np.array([[1, 2, 3]]), np.array(y), 2)


@pytest.mark.parametrize("threat", ["insert_delete", "replace", "label_flip/sample"])
def test_flips_counted_in_rows_certify_nothing_else(threat: str) -> None:
    found = fewest_flips(np.array([[1, 2, 3]]), np.array([0, 0, 1], dtype=np.uint64), 2)
    with pytest.raises(GuaranteeError, match="counted in rows"):
        certify_one_member(*found, 2, 3, parse_threat(threat))
