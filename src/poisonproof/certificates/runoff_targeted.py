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
    n_rows, n_classes = counts.shape
    n_members = ballots.first.shape[1]
    if n_classes == 1:
        return np.full(n_rows, -1, dtype=np.int64)
    contest = _contest(ballots, counts.astype(np.int64), target)
    # All members ranking the target first is an attack of size k that succeeds.
    shortest = np.full(n_rows, n_members, dtype=np.int64)
    at_least = contest.at_least()
    order = np.argsort(at_least, axis=1, kind="stable")
    for rank in range(n_classes - 1):
        rows = np.flatnonzero(at_least[np.arange(n_rows), order[:, rank]] < shortest)
        if not len(rows):
            break  # the opponents to come need even more
        opponent = order[rows, rank]
        fails = np.maximum(at_least[rows, opponent] - 1, 0)
        shortest[rows] = _bisect(contest.against(rows, opponent), fails, shortest[rows])
    return np.where(labels == target, -1, shortest - 1)


@dataclass(frozen=True)
class _Contest:
    """The target against every opponent: axis 0 rows, axis 1 opponents o, axis 2 third labels a.

    `against` picks one opponent per row; axis 1 is then gone.
    """

    third: Ints  # n_a, 0 for a = t or a = o
    over_opponent: Ints  # n_a + [a < o] - n_o, what o must gain on a; far below 0 for t and o
    over_target: Ints  # n_a + [a < t] - n_t, what t must gain on a; likewise
    supporters: Ints  # members with first choice a that rank o before t
    lead: Ints  # (rows, opponents) lead of o in the duel; far above 0 for o = t
    opponent: Ints  # (rows, opponents) n_o
    target: Ints  # (rows,) n_t
    abstaining: Ints  # (rows,)
    far: int  # more than any difference of votes

    def at_least(self) -> Ints:
        """Return a number of changes without which no gap closes, (rows, opponents)."""
        gaps = np.maximum(self.over_opponent.max(axis=2), self.over_target.max(axis=2))
        least: Ints = -(-np.maximum(np.maximum(gaps, self.lead), 0) // 2)
        return least

    def against(self, rows: Ints, opponent: Ints) -> _Contest:
        """Return some rows with one opponent each."""
        return _Contest(
            third=self.third[rows, opponent],
            over_opponent=self.over_opponent[rows, opponent],
            over_target=self.over_target[rows, opponent],
            supporters=self.supporters[rows, opponent],
            lead=self.lead[rows, opponent],
            opponent=self.opponent[rows, opponent],
            target=self.target[rows],
            abstaining=self.abstaining[rows],
            far=self.far,
        )


def _contest(ballots: Ballots, counts: Ints, target: Ints) -> _Contest:
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
    own = counts[np.arange(n_rows), target]
    excluded = np.eye(n_classes, dtype=np.bool_) | (classes == target[:, None])[:, None, :]
    over_opponent = counts[:, None, :] + (classes < classes[:, None]) - counts[:, :, None]
    over_target = counts + (classes < target[:, None]) - own[:, None]
    return _Contest(
        third=np.where(excluded, 0, counts[:, None, :]),
        over_opponent=np.where(excluded, -far, over_opponent),
        over_target=np.where(excluded, -far, over_target[:, None, :]),
        supporters=np.where(excluded, 0, supporters),
        lead=lead,
        opponent=counts,
        target=own,
        abstaining=n_members - counts.sum(axis=1),
        far=far,
    )


def _bisect(contest: _Contest, fails: Ints, succeeds: Ints) -> Ints:
    """Return the fewest changes, between one number that fails and another that succeeds."""
    while np.any(succeeds - fails > 1):
        middle = (fails + succeeds) // 2
        enough = _best_margin(contest, middle) >= 0
        succeeds = np.where(enough, middle, succeeds)
        fails = np.where(enough, fails, middle)
    return succeeds


def _best_margin(contest: _Contest, changes: Ints) -> Ints:
    """Return the largest margin over z; the target can win where it is not negative."""
    supply = contest.third.sum(axis=1) + contest.abstaining
    low = -np.minimum(contest.opponent, changes)
    high = np.minimum(changes, contest.target + supply)
    while np.any(low < high):
        middle = (low + high) // 2
        here = _margin(contest, changes, middle, supply)
        rising = (_margin(contest, changes, middle + 1, supply) > here) & (low < high)
        low, high = np.where(rising, middle + 1, low), np.where(rising, high, middle)
    return _margin(contest, changes, low, supply)


def _margin(contest: _Contest, changes: Ints, z: Ints, supply: Ints) -> Ints:
    """Return by how much the target wins the duel; far below 0 where it cannot reach it.

    The margin is the optimum of a linear program in which z appears on the right-hand side only,
    and convexly in the demands on third labels: hence it is concave in z.
    """
    taken = np.minimum(np.minimum(changes, changes + z), supply)
    demand = np.maximum(
        contest.over_opponent - z[:, None], contest.over_target - (taken - z)[:, None]
    )
    demand = np.maximum(demand, 0)
    forced = np.minimum(demand, contest.third).sum(axis=1)
    unmet = demand.sum(axis=1) - forced + np.maximum(forced - taken, 0)
    won = np.minimum(demand, contest.supporters).sum(axis=1)
    left = contest.supporters.sum(axis=1) - won
    free = np.maximum(taken - forced, 0)
    shifted = 2 * (np.minimum(won, taken) + np.minimum(free, left))
    shifted += np.minimum(np.maximum(free - left, 0), contest.abstaining)
    margin: Ints = shifted - contest.lead - 2 * z - contest.far * unmet
    return margin
