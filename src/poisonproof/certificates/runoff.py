"""Run-off elections of members that order the classes by their scores, and their exact radii.

Every member orders the classes, higher score first, ties by smaller index. Comparing scores is all
that is ever done with them; everything else is integers. The derivations are in
``docs/theorems.md``, and the names here are those of that page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.plurality import (
    ABSTAIN,
    certify_votes,
    check_target,
    count_votes,
    fewest_changes,
)
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.exceptions import InvalidInputError

METHODS = ("runoff", "plurality")
Ints = NDArray[np.int64]
Duel = tuple[Ints, Ints]
"""Supporters by first choice, shape (h, C), and the votes to shift, shape (h,)."""
_BLOCK = 1 << 21  # scores read together; bounds the temporary arrays


def certify_scores(
    scores: ArrayLike,
    method: str = "runoff",
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
) -> Certificates:
    """Certify an election in which every member orders the classes by its scores.

    Parameters
    ----------
    scores : array-like of float, shape (n, k, C)
        One row per test sample: the scores of k members for C classes, of which only the order
        matters. Higher is better, equal scores rank by smaller index. A member abstains with NaN
        for all classes. Any real dtype; memory maps are read in pieces.
    method : {"runoff", "plurality"}
        ``"runoff"``: the two classes with most first choices meet in a duel, in which every member
        votes for the one that it ranks higher. ``"plurality"``: first choices alone.
    threat : str or Threat
        As in `certify_votes`.
    target : int or array-like of int, shape (n,), optional
        Certify against this label only: the radius is then the largest attack that cannot make
        the target win. It is -1 where the target already wins.

    Returns
    -------
    Certificates
        With class indices as labels, first choices as counts and, in a run-off, the other finalist
        as runner-up.

    Guarantee
    ---------
    An attack of at most ``radius`` units leaves the label as it is (with `target`: keeps it from
    becoming the target). The radius is tight: some change of orders within reach of ``radius + 1``
    units succeeds, unless there is only one class.

    Assumes
    -------
    One unit of attack changes at most ``threat.touches`` members, and a member's scores
    depend on nothing but its own training rows and the test row.

    Examples
    --------
    Label 0 has most first choices, but the run-off goes to label 1:

    >>> orders = [[2, 1, 0]] * 3 + [[0, 2, 1]] * 2 + [[0, 1, 2]] * 2  # scores of 7 members
    >>> certificates = certify_scores([orders])
    >>> certificates.counts, certificates.labels, certificates.runner_up, certificates.radius
    (array([[3, 2, 2]], dtype=int32), array([1]), array([0]), array([0]))
    >>> certify_scores([orders], method="plurality").labels
    array([0])
    """
    if method not in METHODS:
        raise InvalidInputError(f"method is one of {', '.join(METHODS)}. Got {method!r}.")
    threat = parse_threat(threat)
    scores = check_scores(scores)
    n, k, n_classes = scores.shape
    targets = None if target is None else check_target(target, n, n_classes)
    if method == "plurality":
        first = np.empty((n, k), dtype=np.int16)
        for rows, ballots in read_ballots(scores):
            first[rows] = ballots.first
        return certify_votes(first, n_classes, threat, targets)
    labels, finalists, radius = (np.empty(n, dtype=np.int64) for _ in range(3))
    counts = np.empty((n, n_classes), dtype=np.int32)
    for rows, ballots in read_ballots(scores):
        counts[rows] = count_votes(ballots.first, n_classes)
        labels[rows], finalists[rows] = elect(ballots, counts[rows])
        if targets is None:
            radius[rows] = runoff_radius(ballots, counts[rows], labels[rows])
        else:
            radius[rows] = runoff_targeted_radius(
                ballots, counts[rows], labels[rows], targets[rows]
            )
    return Certificates(
        labels,
        radius // threat.touches,
        finalists,
        counts,
        threat=threat,
        n_members=k,
        target=targets,
        method="runoff",
    )


@dataclass(frozen=True)
class Ballots:
    """Scores of k members on h test rows, (C, h, k), and first choices (h, k), -1 to abstain."""

    scores: NDArray[Any]
    first: NDArray[np.int16]

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.scores)

    def prefers(self, label: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which members rank `label` before `other`; both of shape (h,), result (h, k)."""
        rows = np.arange(len(self.first))
        ours, theirs = self.scores[label, rows], self.scores[other, rows]
        result: NDArray[np.bool_] = ours > theirs
        result |= (ours == theirs) & (label < other)[:, None]
        return result


def check_scores(scores: ArrayLike) -> NDArray[Any]:
    """Return `scores` as a numeric array of shape (n, k, C), k and C >= 1, without copying it."""
    if np.ma.isMaskedArray(scores):
        raise InvalidInputError(
            "scores is a masked array. Write NaN for all classes where a member abstains."
        )
    array = np.asarray(scores)
    if array.ndim != 3 or 0 in array.shape[1:]:
        raise InvalidInputError(
            "scores must have three dimensions: one row per test sample, at least one member, at "
            f"least one class. Got shape {array.shape}."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"scores must be real numbers, such as float32. Got dtype {array.dtype}."
        )
    if array.shape[1] > np.iinfo(np.int32).max or array.shape[2] > np.iinfo(np.int16).max:
        raise InvalidInputError(
            f"scores has {array.shape[1]:,} members and {array.shape[2]:,} classes; at most "
            "2^31 - 1 and 32,767 are allowed."
        )
    return array


def read_ballots(
    scores: NDArray[Any], max_rows: int = sys.maxsize
) -> Iterator[tuple[slice, Ballots]]:
    """Yield checked scores (n, k, C) in blocks of rows: a memory map may be larger than memory."""
    n, k, n_classes = scores.shape
    height = min(max(1, _BLOCK // (k * n_classes)), max_rows)
    for top in range(0, n, height):
        rows = slice(top, min(top + height, n))
        # Half precision is compared in single precision, which holds it exactly and is faster.
        dtype = np.float32 if scores.dtype == np.float16 else scores.dtype.newbyteorder("=")
        by_class = np.ascontiguousarray(np.moveaxis(scores[rows], 2, 0), dtype=dtype)
        yield rows, Ballots(by_class, _first_choices(by_class, top))


def _first_choices(by_class: NDArray[Any], top: int) -> NDArray[np.int16]:
    abstains = None
    if by_class.dtype.kind == "f" and not np.isfinite(by_class).all():
        abstains = np.isnan(by_class).all(axis=0)
        _check_finite(by_class, abstains, top)
    best = by_class[0].copy()
    first = np.zeros(best.shape, dtype=np.int16)
    for label in range(1, len(by_class)):
        better = by_class[label] > best
        np.copyto(best, by_class[label], where=better)
        np.copyto(first, np.int16(label), where=better)
    if abstains is not None:
        first[abstains] = ABSTAIN
    return first


def _check_finite(by_class: NDArray[Any], abstains: NDArray[np.bool_], top: int) -> None:
    bad = ~np.isfinite(by_class) & ~abstains
    if bad.any():
        row, member, label = (int(i) for i in np.argwhere(np.moveaxis(bad, 0, 2))[0])
        raise InvalidInputError(
            f"scores[{top + row}, {member}, {label}] is {by_class[label, row, member]}. A member "
            "scores every class with a finite number, or abstains with NaN for all classes."
        )


# The two labels with most first choices meet in a duel.


def elect(ballots: Ballots, counts: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the winner and the other finalist of every row; ties go to the smaller label."""
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
    """Return how many members may change without changing the winner: min(R1, R2) - 1."""
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
    """Return who ranks `label` before `other`, by first choice, and the lead of `label`.

    The lead counts one more if `label` wins ties: `other` wins their duel once it is <= 0.
    """
    ranked = np.where(ballots.prefers(label, other), ballots.first, np.int16(ABSTAIN))
    supporters = count_votes(ranked, counts.shape[1]).astype(np.int64)
    lead: Ints = 2 * supporters.sum(axis=1) - counts.sum(axis=1) + (label < other)
    return supporters, lead


def eliminating_attack(counts: Ints, labels: Ints, n_members: int) -> Ints:
    """Return R1, how many changed members let two labels overtake the winner in round one.

    Where there are only two classes, nobody can be eliminated: k + 1.
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
    """Return R2 of one rival: changed members that let it reach the duel and win, by bisection."""
    supporters, lead = duel
    classes = np.arange(counts.shape[1])
    excess = counts + (classes < rival) - counts[:, [rival]]
    # The winner itself need not be overtaken, nor the rival.
    excess[(classes == labels[:, None]) | (classes == rival)] = np.iinfo(np.int64).min // 2
    abstaining = n_members - counts.sum(axis=1)

    def enough(changes: Ints) -> NDArray[np.bool_]:
        forced = np.maximum(excess - changes[:, None], 0)
        free = changes - forced.sum(axis=1)
        won = np.minimum(forced, supporters).sum(axis=1)
        left = supporters.sum(axis=1) - won
        shifted = 2 * (won + np.minimum(free, left)) + np.minimum(
            np.maximum(free - left, 0), abstaining
        )
        return np.asarray((free >= 0) & (shifted >= lead))

    return fewest_changes(enough, np.zeros(len(counts), np.int64), n_members - counts[:, rival])


# Against one label: how many members must change until the target wins.


def runoff_targeted_radius(
    ballots: Ballots, counts: NDArray[Any], labels: Ints, target: Ints
) -> Ints:
    """Return how many members may change without making the target win; -1 where it has won."""
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
        duel = contest.against(rows, opponent)

        def enough(changes: Ints, duel: _Contest = duel) -> NDArray[np.bool_]:
            return _best_margin(duel, changes) >= 0

        shortest[rows] = fewest_changes(enough, fails, shortest[rows])
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
        pair = ("third", "over_opponent", "over_target", "supporters", "lead", "opponent")
        chosen = {name: getattr(self, name)[rows, opponent] for name in pair}
        return replace(self, **chosen, target=self.target[rows], abstaining=self.abstaining[rows])


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
    """Return by how much the target wins the duel, concave in z; far below 0 out of its reach."""
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
