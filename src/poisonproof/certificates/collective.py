"""How many predictions can fall at once: one attack changes the same members on all rows.

Every row by itself may withstand an attack of some size and fall to a larger one, but the rows fall
to *different* attacks. This file holds the problem in integers and a fast bound; the exact answer
is a mixed-integer program, in `poisonproof.evaluation.collective`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.counting import count_votes
from poisonproof.certificates.finite_aggregation import certify_finite_aggregation
from poisonproof.certificates.plurality import plurality, plurality_radius, targeted_radius
from poisonproof.certificates.spread import Spread, check_membership

__all__ = ["CollectiveProblem", "Condition", "bucket_shares", "collective_bound", "make_problem"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Condition:
    """Rows on which a rival overtakes a leader once the attacked members weigh enough.

    A member weighs 1 + [it votes for the leader] - [it votes for the rival]; abstaining is 1.
    """

    rows: Ints  # shape (m,)
    leader: Ints
    rival: Ints
    gap: Ints  # the weight that is needed, at least 1

    def weights(self, votes: NDArray[Any]) -> NDArray[np.int8]:
        """Return the weight of every member on every row of the condition, shape (m, k)."""
        said = votes[self.rows]
        weights: NDArray[np.int8] = (said == self.leader[:, None]).astype(np.int8) + np.int8(1)
        weights -= said == self.rival[:, None]
        return weights


@dataclass(frozen=True)
class CollectiveProblem:
    """Votes on n rows, and what an attacker who owns buckets of rows wants to happen on each.

    Attributes
    ----------
    votes : ndarray of int, shape (n, k)
        Class indices, -1 for an abstention.
    counts : ndarray of int, shape (n, C)
        Votes per class.
    labels : ndarray of int, shape (n,)
        Plurality labels.
    target : ndarray of int, shape (n,), or None
        None: a row falls when its label changes. Else: when it becomes the target.
    attack : ndarray of int, shape (n,)
        Buckets that must change for the row to fall, taken alone, at least.
    buckets : ndarray of int, shape (B, d)
        The members that each bucket serves; disjoint partitions serve one each.
    """

    votes: NDArray[Any]
    counts: Ints
    labels: Ints
    target: Ints | None
    attack: Ints
    buckets: Ints

    @property
    def disjoint(self) -> bool:
        """Whether bucket j serves member j and no other."""
        return np.array_equal(self.buckets, np.arange(self.votes.shape[1])[:, None])

    def rivalries(self, reach: int) -> Iterator[Condition]:
        """Yield the conditions under which rows within reach of `reach` buckets fall.

        Without a target a row falls if *one* of its conditions holds, with a target if *all* do.
        Labels without votes are left out where another rival is at least as close, whatever is
        attacked.
        """
        n_classes = self.counts.shape[1]
        rows = np.flatnonzero(self.attack <= reach)
        for label in range(n_classes):
            other = np.full(len(rows), label)
            if self.target is None:
                leader, rival = self.labels[rows], other
            else:
                leader, rival = other, self.target[rows]
            gap = self.counts[rows, leader] - self.counts[rows, rival] + (rival > leader)
            keep = (leader != rival) & (gap > 0)
            if self.target is None:
                keep &= gap <= 2 * reach * self.buckets.shape[1]
                keep &= ~self._dominated(rows, label)
            yield Condition(rows[keep], leader[keep], rival[keep], gap[keep])

    def fallen(self, owned: Ints) -> NDArray[np.bool_]:
        """Say which rows fall to an attacker who owns these buckets; exact, shape (n,)."""
        if not len(owned):
            return np.zeros(len(self.votes), dtype=np.bool_)
        members = np.unique(self.buckets[owned])
        theirs = count_votes(self.votes[:, members], self.counts.shape[1]).astype(np.int64)
        kept = self.counts - theirs
        rows, classes = np.arange(len(kept)), np.arange(kept.shape[1])
        if self.target is None:
            # Some label other than the winner gets every owned vote.
            ours = kept[rows, self.labels][:, None]
            rivals = kept + len(members)
            wins = (rivals > ours) | ((rivals == ours) & (classes < self.labels[:, None]))
            wins[rows, self.labels] = False
            return np.asarray(wins.any(axis=1))
        best = kept[rows, self.target][:, None] + len(members)
        loses = (kept < best) | ((kept == best) & (self.target[:, None] <= classes))
        loses[rows, self.target] = True
        return np.asarray(loses.all(axis=1))

    def _dominated(self, rows: Ints, label: int) -> NDArray[np.bool_]:
        """Say where nobody votes for `label` and a rival with votes wins whenever it would.

        Every set of members that lifts a label without votes over the winner also lifts one that
        has some, if ties are no better for the former.
        """
        counts, winner = self.counts[rows], self.labels[rows][:, None]
        classes = np.arange(counts.shape[1])
        better = (counts > 0) | (classes < label)
        better &= (classes != winner) & (classes != label)
        if_behind = np.where(label < winner, classes < winner, True)
        dominated: NDArray[np.bool_] = (counts[:, label] == 0) & (better & if_behind).any(axis=1)
        return dominated


def make_problem(
    votes: NDArray[Any],
    n_classes: int,
    target: Ints | None = None,
    membership: Spread | ArrayLike | None = None,
) -> CollectiveProblem:
    """Count the votes and find how many buckets it takes to make each row fall alone.

    Without `membership` partitions are disjoint. With a target, rows that it wins already have
    fallen: leave them out.
    """
    counts = count_votes(votes, n_classes).astype(np.int64)
    labels, runner_up = plurality(counts)
    n_members = votes.shape[1]
    buckets = np.arange(n_members)[:, None]
    if membership is not None:
        buckets = check_membership(membership, n_members)
        radius = certify_finite_aggregation(votes, n_classes, buckets, target=target).radius
    elif target is None:
        radius = plurality_radius(counts, labels, runner_up, n_members)
    else:
        radius = targeted_radius(counts, labels, target, n_members)
    return CollectiveProblem(votes, counts, labels, target, radius + 1, buckets)


def collective_bound(
    problem: CollectiveProblem, reach: int, iterations: int = 60
) -> tuple[int, Ints]:
    """Bound how many rows fall when `reach` buckets change; fast and sound.

    With weights w over gaps g, a row can fall only if the attacked members' shares w / g sum to 1,
    and so only if those of the attacked buckets do, where a bucket has the shares of all members
    that it serves. So for every discount a in [0, 1] per row, the number of fallen rows is at most
    the sum of the discounts plus the largest `reach` of the buckets' totals of (1 - a) times their
    shares. This is the dual of a linear relaxation; the discounts are improved by fictitious play
    between attacker and defender, and any of them gives a sound bound.

    Parameters
    ----------
    problem : CollectiveProblem
        Votes and aims.
    reach : int
        Buckets that the attacker owns.
    iterations : int
        Rounds of play.

    Returns
    -------
    bound : int
        No attack on `reach` buckets makes more rows fall.
    owned : ndarray of int
        The best attack met on the way, for a lower bound with `CollectiveProblem.fallen`.
    """
    n_buckets = len(problem.buckets)
    reach = min(reach, n_buckets)
    alone = int((problem.attack <= reach).sum())
    if reach == n_buckets or not alone:
        return alone, np.arange(reach)
    shares = bucket_shares(problem, reach)
    attacked = np.full(n_buckets, reach / n_buckets)
    discount = np.zeros(len(shares))
    # A sum of m terms in double precision is off by less than m 2^-52 of its value.
    rounding = 1e-6 + 1e-15 * len(shares) * alone
    bound, most, owned = alone, -1, np.arange(reach)
    for step in range(iterations):
        discount += ((shares @ attacked > 1) - discount) / (step + 1)
        totals = (1 - discount) @ shares
        strongest = np.argpartition(totals, n_buckets - reach)[n_buckets - reach :]
        value = float(discount.sum() + totals[strongest].sum())
        bound = min(bound, int(np.floor(value + rounding)))
        fallen = int(problem.fallen(strongest).sum())
        if fallen > most:
            most, owned = fallen, np.sort(strongest)
        if most == bound:
            break
        answer = np.zeros(n_buckets)
        answer[strongest] = 1
        attacked += (answer - attacked) * 2 / (step + 3)
    return bound, owned


def bucket_shares(problem: CollectiveProblem, reach: int) -> Floats:
    """Return the share of its way to falling that each bucket can carry a row, shape (m, B).

    Rows within reach only. A bucket carries what the members that it serves carry together, and
    nobody carries a row farther than all the way.
    """
    shares: Floats = _member_shares(problem, reach)[:, problem.buckets].sum(axis=2)
    return shares.clip(max=1.0)


def _member_shares(problem: CollectiveProblem, reach: int) -> Floats:
    """Return the same for members, shape (m, k).

    Without a target the largest share over the rivals; with a target the share against the label
    that leads most, the winner.
    """
    rows = np.flatnonzero(problem.attack <= reach)
    shares = np.zeros((len(problem.votes), problem.votes.shape[1]))
    for condition in problem.rivalries(reach):
        if problem.target is not None:
            leads = condition.leader == problem.labels[condition.rows]
            condition = Condition(  # noqa: PLW2901
                condition.rows[leads],
                condition.leader[leads],
                condition.rival[leads],
                condition.gap[leads],
            )
        carried = condition.weights(problem.votes) / condition.gap[:, None]
        shares[condition.rows] = np.maximum(shares[condition.rows], carried)
    return shares[rows]
