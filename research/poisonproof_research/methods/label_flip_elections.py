"""Elections of members that are linear in their labels: what it costs to flip enough of them.

An attacker's budget is labels, not members: an election is lost only when the cheapest members that
turn it cost too many labels together. That is a knapsack with a choice per member.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.label_flips import NEVER
from poisonproof.certificates.plurality import ABSTAIN, count_votes, plurality, targeted_radius
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import InvalidInputError

Ints = NDArray[np.int64]


def flips_to_overtake(
    weights: NDArray[Any], y: NDArray[Any], n_classes: int
) -> tuple[Ints, NDArray[np.int32]]:
    """Return one member's votes, and what it costs each other label to overtake them.

    Parameters
    ----------
    weights : ndarray of int, shape (n, m)
        How much each of the member's m rows counts for each test row. No label may change them.
        Their absolute values add up to less than 2^30 in every row.
    y : ndarray of int, shape (m,)
        Labels of the member's rows.
    n_classes : int
        Number of classes, C.

    Returns
    -------
    votes : ndarray of shape (n,)
        The class of largest score, the smaller on ties; -1 without rows.
    prices : ndarray of shape (n, C)
        The fewest flipped labels after which class u is ahead of the vote v, exactly: 0 for v
        itself, `NEVER` where no flips do it. The smallest price is exactly what changing the vote
        costs; that *u* wins may cost more, if a third class is in the way.

    Notes
    -----
    With a = [y_i = v] - [y_i = u], a flip of row i lowers s_v - s_u by at most w_i a + |w_i|, by
    giving it to u if w_i > 0, to v if w_i < 0. The largest reductions are spent first.

    Examples
    --------
    >>> votes, prices = flips_to_overtake(np.array([[4, 2, 1]]), np.array([0, 0, 1]), 2)
    >>> votes, prices
    (array([0]), array([[0, 1]], dtype=int32))
    """
    n, m = weights.shape
    prices = np.full((n, n_classes), NEVER, dtype=np.int32)
    if m == 0:
        return np.full(n, ABSTAIN, dtype=np.int64), prices
    weights = weights.astype(np.int32, copy=False)
    of_class = np.zeros((m, n_classes), dtype=np.int32)
    of_class[np.arange(m), y] = 1
    scores = np.stack([weights[:, y == c].sum(axis=1) for c in range(n_classes)], axis=1)
    votes = scores.argmax(axis=1)
    rows = np.arange(n)
    own = of_class.T[votes]  # (n, m): whether the row has the label voted for
    size = np.abs(weights)
    for label in range(n_classes):
        lower = weights * (own - of_class[:, label]) + size
        lower.sort(axis=1)
        reached = np.cumsum(lower[:, ::-1], axis=1)
        lead = scores[rows, votes] - scores[:, label] + (label > votes)
        price = (reached < lead[:, None]).sum(axis=1) + 1
        prices[:, label] = np.where(price > m, NEVER, price)
    prices[rows, votes] = 0
    return votes, prices


def certify_label_flips(
    votes: NDArray[Any],
    prices: NDArray[Any],
    n_rows: int,
    threat: Threat,
    target: int | None = None,
) -> Certificates:
    """Certify the plurality label of members whose votes have a price in flipped labels.

    Parameters
    ----------
    votes : ndarray of int, shape (n, k)
        Votes, -1 where a member abstains, which no flips change.
    prices : ndarray of int, shape (n, k, C)
        What `flips_to_overtake` says of each member.
    n_rows : int
        Number of training rows, below 2^30; the radius where no flips change the label.
    threat : Threat
        Label flips.
    target : int, optional
        Certify against this label only; -1 where it already wins.

    Guarantee
    ---------
    No `radius` flipped labels change the label (with `target`: make it the target). The radius is
    never below theorem 2's, nor with `target` below that of `certify_votes`, because every price
    is at least 1.

    Assumes
    -------
    Every training row belongs to at most one member, and a member that votes goes on voting.
    """
    if n_rows >= NEVER:
        raise InvalidInputError(f"Flips are counted among fewer than 2^30 rows. Got {n_rows:,}.")
    n, k, n_classes = prices.shape
    counts = count_votes(votes, n_classes).astype(np.int64)
    labels, runner_up = plurality(counts)
    away = _cheapest_change(votes, prices)
    price = _overtaking_price if target is None else _winning_price
    shortest = np.full(n, NEVER, dtype=np.int64)
    for rival in range(n_classes) if target is None else [target]:
        attack = price(votes, prices, away, counts, labels, rival)
        attack[labels == rival] = NEVER if target is None else 0
        runner_up = np.where(attack < shortest, rival, runner_up)
        shortest = np.minimum(shortest, attack)
    radius = np.where(shortest >= NEVER, n_rows, shortest - 1)
    goal = None if target is None else np.full(n, target, dtype=np.int64)
    return Certificates(
        labels, radius, runner_up, counts, threat, k, target=goal, method="label_flips"
    )


def _cheapest_change(votes: NDArray[Any], prices: NDArray[Any]) -> Ints:
    """Return what it costs to turn each member to anybody else, shape (n, k)."""
    if prices.shape[2] == 1:
        return np.full(votes.shape, NEVER, dtype=np.int64)
    second = np.partition(prices, 1, axis=2)[:, :, 1]  # the smallest is 0, for the vote itself
    return np.where(votes == ABSTAIN, NEVER, second).astype(np.int64)


def _overtaking_price(
    votes: NDArray[Any],
    prices: NDArray[Any],
    away: Ints,
    counts: Ints,
    leaders: Ints,
    rival: int,
) -> Ints:
    """Return the fewest flips with which `rival` may overtake one leader per row, shape (n,)."""
    rows = np.arange(len(votes))
    gap = counts[rows, leaders] - counts[:, rival] - (rival < leaders)
    for_leader = votes == leaders[:, None]
    whole = prices[:, :, rival].astype(np.int64)
    single = np.where(for_leader, away, whole)
    nothing = (votes == rival) | (votes == ABSTAIN)
    single = np.where(nothing, NEVER, single)
    double = np.where(for_leader, whole, NEVER)
    return cheapest_election(single, double, gap + 1)


def _winning_price(
    votes: NDArray[Any],
    prices: NDArray[Any],
    away: Ints,
    counts: Ints,
    labels: Ints,
    target: int,
) -> Ints:
    """Return a number of flips below which `target` cannot win, shape (n,).

    The largest of three bounds. The target must overtake every label, the most expensive one, too.
    By theorem 2 a number of members must change, and none of them need be the target's. And whoever
    wins has at least its share of the votes: these turn to the target itself.
    """
    n_members, n_classes = votes.shape[1], counts.shape[1]
    others = votes != target
    must_change = targeted_radius(counts, labels, np.full_like(labels, target), n_members) + 1
    # If q wins with t votes, then counts.sum() <= t C - q, as smaller labels have less than t.
    share = -(-(counts.sum(axis=1) + target) // n_classes)
    must_turn = np.maximum(share - counts[:, target], 0)
    price = np.maximum(
        _cheapest(np.where(others, away, NEVER), must_change),
        _cheapest(np.where(others, prices[:, :, target], NEVER), must_turn),
    )
    for label in range(n_classes):
        if label != target:
            leaders = np.full_like(labels, label)
            attack = _overtaking_price(votes, prices, away, counts, leaders, target)
            price = np.maximum(price, attack)
    return np.minimum(price, NEVER)


def _cheapest(prices: Ints, taken: Ints) -> Ints:
    """Return what the cheapest so many members of every row cost, (n, k) and (n,) to (n,)."""
    sums = _prefix_sums(np.sort(prices, axis=1))
    price: Ints = np.take_along_axis(sums, taken[:, None], axis=1)[:, 0]
    return price


def cheapest_election(single: Ints, double: Ints, steps: Ints) -> Ints:
    """Return the smallest total price of at least `steps` steps: a multiple-choice knapsack.

    Parameters
    ----------
    single, double : ndarray of int, shape (n, k)
        What one step and two steps of each member cost; every member is used at most once.
    steps : ndarray of int, shape (n,)
        Steps needed; none where it is 0 or less.

    Notes
    -----
    Solved exactly by sorting. Where the second step costs at least as much as the first, the two
    are independent offers of one step each. The others are offers of two steps: of two such members
    that each do one step, the cheaper does both for less, so at most one of them does just one.
    What is left is how many pairs to take, and which member, if any, does one step alone.

    Examples
    --------
    >>> cheapest_election(np.array([[2, 1, 3]]), np.array([[3, 4, 9]]), np.array([3]))
    array([4])
    """
    n, k = single.shape
    split = 2 * single <= double
    offers = np.concatenate(
        [np.where(split, single, NEVER), np.where(split, double - single, NEVER)], axis=1
    )
    steps_price = _prefix_sums(np.sort(np.minimum(offers, NEVER), axis=1))
    pair_price = np.where(split, NEVER, double)
    order = np.argsort(pair_price, axis=1, kind="stable")
    pairs = np.take_along_axis(pair_price, order, axis=1)
    alone = np.take_along_axis(np.where(split, NEVER, single), order, axis=1)
    totals = _prefix_sums(pairs)  # (n, k + 1): the price of the b cheapest pairs
    taken = np.arange(k + 1)
    without = totals + _steps_after(steps_price, steps, 2 * taken)
    # One member alone beside b pairs: it comes after them, or it is one of the first b and the
    # next pair takes its place.
    after = np.full((n, k + 1), NEVER, dtype=np.int64)
    after[:, :k] = np.minimum.accumulate(alone[:, ::-1], axis=1)[:, ::-1]
    instead = np.full((n, k + 1), NEVER, dtype=np.int64)
    saved = np.minimum.accumulate(alone - pairs, axis=1)
    instead[:, :k] = totals[:, 1:] - totals[:, :-1] + saved
    alone_price = np.minimum(after, instead)
    beside = totals + alone_price + _steps_after(steps_price, steps, 2 * taken + 1)
    best: Ints = np.minimum(without, beside).min(axis=1)
    return np.minimum(best, NEVER)


def _prefix_sums(prices: Ints) -> Ints:
    sums = np.zeros((len(prices), prices.shape[1] + 1), dtype=np.int64)
    np.cumsum(prices, axis=1, out=sums[:, 1:])
    return sums


def _steps_after(steps_price: Ints, steps: Ints, done: Ints) -> Ints:
    """Return the price of the steps left after `done` of them, shape (n, len(done))."""
    left = np.maximum(steps[:, None] - done, 0)
    inside = np.minimum(left, steps_price.shape[1] - 1)
    prices: Ints = np.take_along_axis(steps_price, inside, axis=1)
    return np.where(left > inside, NEVER, prices)
