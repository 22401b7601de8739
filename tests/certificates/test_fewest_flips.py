"""One member on all rows: no attack is cheaper than its price."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof.certificates import make_threat
from poisonproof.certificates.label_flips import (
    NEVER,
    certify_one_member,
    fewest_flips,
)
from poisonproof.certificates.threats import parse_threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError

FLIPS = make_threat("label_flip")


def test_a_targets_price_is_that_of_the_rival_it_is() -> None:
    rng = np.random.default_rng(2)
    weights, y = rng.integers(-9, 20, (200, 30)), rng.integers(0, 5, 30)
    votes, rivals, prices = fewest_flips(weights, y, 5)
    aimed = np.array([fewest_flips(weights, y, 5, target)[2] for target in range(5)]).T
    assert (aimed[np.arange(200), votes] == NEVER).all()
    assert np.array_equal(aimed.min(axis=1), prices)
    assert np.array_equal(aimed[np.arange(200), rivals], prices)
    targeted = certify_one_member(*fewest_flips(weights, y, 5, 3), 5, 30, FLIPS, target=3)
    assert ((targeted.radius == -1) == (votes == 3)).all()


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


def test_one_class_never_loses_and_no_rows_are_refused() -> None:
    found = fewest_flips(np.ones((1, 2), int), np.zeros(2, int), 1)
    assert certify_one_member(*found, 1, 2, FLIPS).radius.tolist() == [2]
    with pytest.raises(InvalidInputError, match="at least one"):
        fewest_flips(np.ones((1, 0), int), np.zeros(0, int), 2)


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
