"""Run-off election: the two labels with most first choices meet in a duel.

The radius is exact for the orders of the members: see ``docs/certificates/runoff.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.ballots import Ballots
from poisonproof.certificates.counting import ABSTAIN, count_votes

__all__ = ["Duel", "count_preferences", "elect", "eliminating_attack", "runoff_radius"]

Ints = NDArray[np.int64]
Duel = tuple[Ints, Ints]
"""Supporters by first choice, shape (h, C), and the votes to shift, shape (h,)."""


def elect(ballots: Ballots, counts: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the winner and the other finalist of every row.

    Parameters
    ----------
    ballots : Ballots
        Orders of k members on h rows.
    counts : ndarray of int, shape (h, C)
        First choices per class.

    Returns
    -------
    labels, finalists : ndarray of shape (h,)
        Round one is a plurality vote for two labels, round two a duel between them; ties go to the
        smaller label in both. With one class, that class twice.
    """
    rows = np.arange(len(counts))
    one = counts.argmax(axis=1)
    if counts.shape[1] == 1:
        return one, one
    others = counts.astype(np.int64)
    others[rows, one] = -1
    two = others.argmax(axis=1)
    for_one = ballots.prefers(one, two).sum(axis=1)
    for_two = counts.sum(axis=1) - for_one
    one_wins = (for_one > for_two) | ((for_one == for_two) & (one < two))
    return np.where(one_wins, one, two), np.where(one_wins, two, one)


def runoff_radius(ballots: Ballots, counts: NDArray[Any], labels: Ints) -> Ints:
    """Return how many members may change without changing the winner; exact.

    The winner p falls in one of two ways. Either two labels overtake it in round one
    (`eliminating_attack`), or some label c overtakes all labels but p in round one and wins the
    duel against p. For the second way it is best to make every changed member rank c first, so
    only *which* members change is open: with r changes every label a must lose its excess over
    n_c + r, and as many of the changed members as possible should be supporters of p against c.

    Parameters
    ----------
    ballots : Ballots
        Orders of k members on h rows.
    counts : ndarray of int, shape (h, C)
        First choices per class.
    labels : ndarray of int, shape (h,)
        The winners.

    Returns
    -------
    ndarray of shape (h,)
        Radius in members; all members where there is one class.
    """
    n_rows, n_classes = counts.shape
    n_members = ballots.first.shape[1]
    if n_classes == 1:
        return np.full(n_rows, n_members, dtype=np.int64)
    counts = counts.astype(np.int64)
    shortest = eliminating_attack(counts, labels, n_members)
    for rival in range(n_classes):
        rivals = np.full(n_rows, rival)
        duel = count_preferences(ballots, labels, rivals, counts)
        attack = _duel_attack(duel, counts, labels, rival, n_members)
        shortest = np.minimum(shortest, np.where(labels == rival, n_members + 1, attack))
    return shortest - 1


def count_preferences(ballots: Ballots, label: Ints, other: Ints, counts: Ints) -> Duel:
    """Return who ranks `label` before `other`, and the lead of `label` in their duel.

    Returns
    -------
    supporters : ndarray of shape (h, C)
        Members that rank `label` before `other`, counted by their first choice.
    lead : ndarray of shape (h,)
        Votes by which `label` leads, plus one if it wins ties: `other` wins once it is <= 0.
    """
    ranked = np.where(ballots.prefers(label, other), ballots.first, np.int16(ABSTAIN))
    supporters = count_votes(ranked, counts.shape[1]).astype(np.int64)
    lead: Ints = 2 * supporters.sum(axis=1) - counts.sum(axis=1) + (label < other)
    return supporters, lead


def eliminating_attack(counts: Ints, labels: Ints, n_members: int) -> Ints:
    """Return how many changed members let two labels overtake the winner in round one.

    A first choice moved from the winner to a label closes its gap by 2 and every other gap by 1, so
    gaps i <= j need max(ceil(j / 2), ceil((i + j) / 3)). That grows with both, so the two
    smallest gaps decide. Where there are only two classes, nobody can be eliminated: k + 1.
    """
    n_classes = counts.shape[1]
    if n_classes == 2:
        return np.full(len(counts), n_members + 1, dtype=np.int64)
    own = np.take_along_axis(counts, labels[:, None], axis=1)
    gaps = own - counts + (np.arange(n_classes) > labels[:, None])
    np.put_along_axis(gaps, labels[:, None], np.iinfo(np.int64).max, axis=1)
    smallest = np.partition(gaps, 1, axis=1)
    low, high = smallest[:, 0], smallest[:, 1]
    attack: Ints = np.maximum(np.maximum(-(-high // 2), -(-(low + high) // 3)), 0)
    return attack


def _duel_attack(duel: Duel, counts: Ints, labels: Ints, rival: int, n_members: int) -> Ints:
    """Return how many changed members let `rival` reach the duel with the winner and win it.

    More changes never hurt, so the number is found by bisection. It is at most k - n_c, when all
    members rank the rival first.
    """
    supporters, lead = duel
    classes = np.arange(counts.shape[1])
    excess = counts + (classes < rival) - counts[:, [rival]]
    # The winner itself need not be overtaken, nor the rival.
    excess[(classes == labels[:, None]) | (classes == rival)] = np.iinfo(np.int64).min // 2
    abstaining = n_members - counts.sum(axis=1)
    fails, succeeds = np.zeros(len(counts), dtype=np.int64), n_members - counts[:, rival]
    while np.any(succeeds - fails > 1):
        middle = (fails + succeeds) // 2
        forced = np.maximum(excess - middle[:, None], 0)
        free = middle - forced.sum(axis=1)
        won = np.minimum(forced, supporters).sum(axis=1)
        left = supporters.sum(axis=1) - won
        shifted = 2 * (won + np.minimum(free, left)) + np.minimum(
            np.maximum(free - left, 0), abstaining
        )
        enough = (free >= 0) & (shifted >= lead)
        succeeds = np.where(enough, middle, succeeds)
        fails = np.where(enough, fails, middle)
    return succeeds
