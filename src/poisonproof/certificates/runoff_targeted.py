"""Run-off election against one label: how many members must change until the target wins.

Exact. The derivation is in ``docs/certificates/runoff.md``; the names here are those of that page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.ballots import Ballots
from poisonproof.certificates.runoff import count_preferences

__all__ = ["runoff_targeted_radius"]

Ints = NDArray[np.int64]


def runoff_targeted_radius(
    ballots: Ballots, counts: NDArray[Any], labels: Ints, target: Ints
) -> Ints:
    """Return how many members may change without making the target win.

    The target t wins when, for some opponent o, both get more first choices than every other label
    and t wins their duel. An attack takes A first choices from other labels and from abstaining
    members, and raises o by z and t by A - z; z may be negative (o hands first choices to t) or
    exceed A (t hands some to o). It changes max(A, z, A - z) members. For a given number of changes
    the largest A is best, and what is left is a concave function of z, whose maximum is found by
    bisection on its slope; the number of changes is found by an outer bisection.

    Parameters
    ----------
    ballots : Ballots
        Orders of k members on h rows.
    counts : ndarray of int, shape (h, C)
        First choices per class.
    labels, target : ndarray of int, shape (h,)
        Winning and target label.

    Returns
    -------
    ndarray of shape (h,)
        Radius in members; -1 where the target has won already.
    """
    n_members = ballots.first.shape[1]
    if counts.shape[1] == 1:
        return np.full(len(counts), -1, dtype=np.int64)
    field = _field(ballots, counts.astype(np.int64), target)
    # All members ranking the target first is an attack of size k that succeeds.
    fails = np.zeros(len(counts), dtype=np.int64)
    succeeds = np.full(len(counts), n_members, dtype=np.int64)
    while np.any(succeeds - fails > 1):
        middle = (fails + succeeds) // 2
        enough = (_best(field, middle[:, None]) >= 0).any(axis=1)
        succeeds = np.where(enough, middle, succeeds)
        fails = np.where(enough, fails, middle)
    return np.where(labels == target, -1, fails)


@dataclass(frozen=True)
class _Field:
    """What the search needs: axis 0 rows, axis 1 opponents o, axis 2 third labels a."""

    third: Ints  # n_a, 0 for a = t or a = o
    over_opponent: Ints  # n_a + [a < o] - n_o, what o must gain on a; very negative for t and o
    over_target: Ints  # n_a + [a < t] - n_t
    supporters: Ints  # members with first choice a that rank o before t
    lead: Ints  # (rows, opponents) lead of o in the duel; very large for o = t
    own: Ints  # (rows, 1) n_t
    opponents: Ints  # (rows, opponents) n_o
    abstaining: Ints  # (rows, 1)
    penalty: int  # more than any lead


def _field(ballots: Ballots, counts: Ints, target: Ints) -> _Field:
    n_rows, n_classes = counts.shape
    n_members = ballots.first.shape[1]
    far = 16 * (n_members + 1)
    classes = np.arange(n_classes)
    supporters = np.empty((n_rows, n_classes, n_classes), dtype=np.int64)
    lead = np.empty((n_rows, n_classes), dtype=np.int64)
    for opponent in range(n_classes):
        supporters[:, opponent], lead[:, opponent] = count_preferences(
            ballots, np.full(n_rows, opponent), target, counts
        )
    lead[np.arange(n_rows), target] = far
    own = np.take_along_axis(counts, target[:, None], axis=1)
    excluded = np.eye(n_classes, dtype=np.bool_) | (classes == target[:, None])[:, None, :]
    ties_opponent, ties_target = classes < classes[:, None], classes < target[:, None]
    over_opponent = counts[:, None, :] + ties_opponent - counts[:, :, None]
    over_target = (counts + ties_target - own)[:, None, :]
    return _Field(
        third=np.where(excluded, 0, counts[:, None, :]),
        over_opponent=np.where(excluded, -far, over_opponent),
        over_target=np.where(excluded, -far, over_target),
        supporters=np.where(excluded, 0, supporters),
        lead=lead,
        own=own,
        opponents=counts,
        abstaining=n_members - counts.sum(axis=1, keepdims=True),
        penalty=far,
    )


def _best(field: _Field, changes: Ints) -> Ints:
    """Return the largest margin over z, (rows, opponents); the target can win where it is >= 0."""
    supply = field.third.sum(axis=2) + field.abstaining
    low = -np.minimum(field.opponents, changes)
    high = np.minimum(changes, field.own + supply)
    while np.any(low < high):
        middle = (low + high) // 2
        rising = _margin(field, changes, middle + 1, supply) > _margin(
            field, changes, middle, supply
        )
        low, high = np.where(rising & (low < high), middle + 1, low), np.where(rising, high, middle)
    return _margin(field, changes, low, supply)


def _margin(field: _Field, changes: Ints, z: Ints, supply: Ints) -> Ints:
    """Return by how much the target wins the duel; far below 0 where it cannot reach it.

    Moving z from one value to the next changes the demands on the third labels by at most one
    each, and the margin is the optimum of a linear program in which z appears on the right-hand
    side only: hence it is concave in z.
    """
    taken = np.minimum(np.minimum(changes, changes + z), supply)
    demand = np.maximum(
        field.over_opponent - z[:, :, None], field.over_target - (taken - z)[:, :, None]
    )
    demand = np.maximum(demand, 0)
    forced = np.minimum(demand, field.third).sum(axis=2)
    unmet = demand.sum(axis=2) - forced + np.maximum(forced - taken, 0)
    won = np.minimum(demand, field.supporters).sum(axis=2)
    left = field.supporters.sum(axis=2) - won
    free = np.maximum(taken - forced, 0)
    shifted = 2 * (np.minimum(won, taken) + np.minimum(free, left)) + np.minimum(
        np.maximum(free - left, 0), field.abstaining
    )
    result: Ints = shifted - field.lead - 2 * z - field.penalty * unmet
    return result
