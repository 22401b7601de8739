"""Exhaustive label flips, free of every formula that it is used to check.

Members share no rows. So all labels of each member's own rows are tried first, for the fewest flips
behind each of its votes; then all votes of all members together.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

Rng = np.random.Generator
Members = list[tuple[np.ndarray, np.ndarray]]
"""Weights and labels of every member's rows."""

OUT_OF_REACH = 10**6
"""Flips behind what no labels bring about: more than there are rows."""


@cache
def labelings(n_rows: int, n_classes: int) -> np.ndarray:
    return np.array(list(product(range(n_classes), repeat=n_rows)), dtype=int)


def some_members(rng: Rng, n_members: int, most_rows: int) -> tuple[Members, int]:
    """Return members of few rows, and the number of classes.

    From mixed labels to members with one label only; some members have no rows, if there are
    others, and equal weights make ties.
    """
    n_classes = int(rng.integers(2, 5))
    share = rng.dirichlet(np.full(n_classes, rng.choice([0.1, 0.3, 1.0])))
    least, most = [(-3, 5), (-1, 5), (1, 5), (1, 1)][rng.integers(4)]
    sizes = rng.integers(1, most_rows + 1, (3, n_members)).max(axis=0)
    sizes[1:] *= rng.random(n_members - 1) < 0.9
    return [
        (rng.integers(least, most + 1, size), rng.choice(n_classes, size, p=share))
        for size in sizes
    ], n_classes


def some_target(rng: Rng, flips: np.ndarray) -> int:
    """Return a class, seldom the one that wins now."""
    first, second = rng.integers(len(flips), size=2)
    return int(first if flips[first] > 0 else second)


def flips_by_vote(weights: np.ndarray, y: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the fewest flips after which one member votes for each class."""
    every = labelings(len(y), n_classes)
    scores = [(weights * (every == c)).sum(axis=1) for c in range(n_classes)]
    return _fewest(np.argmax(scores, axis=0), (every != y).sum(axis=1), n_classes)


def flips_by_winner(members: Members, n_classes: int) -> np.ndarray:
    """Return the fewest flips after which each class wins the election; 0 for who wins now."""
    prices = [flips_by_vote(*member, n_classes) for member in members if len(member[1])]
    every = labelings(len(prices), n_classes)
    counts = (every[:, :, None] == np.arange(n_classes)).sum(axis=1)
    flips = sum((own[every[:, i]] for i, own in enumerate(prices)), np.zeros(len(every), int))
    return _fewest(counts.argmax(axis=1), flips, n_classes)


def true_radius(flips: np.ndarray, n_rows: int, target: int | None = None) -> int:
    """Return the largest attack that fails, from the flips behind every outcome."""
    fallen = flips[flips > 0] if target is None else flips[[target]]
    return min([int(flips) - 1 for flips in fallen if flips < OUT_OF_REACH], default=n_rows)


def _fewest(outcomes: np.ndarray, flips: np.ndarray, n_classes: int) -> np.ndarray:
    fewest = np.full(n_classes, OUT_OF_REACH)
    np.minimum.at(fewest, outcomes, flips)
    return fewest
