"""Run-off election among members that share buckets of rows: sound bounds in buckets.

Every necessary condition of a successful attack is the closing of a gap, and a gap needs a certain
number of buckets (`poisonproof.certificates.buckets`). A way to win needs the largest number
among its conditions; the attacker takes the cheapest way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.ballots import Ballots
from poisonproof.certificates.buckets import (
    BucketVotes,
    bucket_sums,
    buckets_needed,
    gather_votes,
    other_label,
)
from poisonproof.certificates.counting import ABSTAIN

__all__ = ["SharedBallots", "shared_ballots", "shared_runoff_radius", "shared_targeted_radius"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SharedBallots:
    """Ballots on h rows together with the buckets that can change them."""

    ballots: Ballots
    served: BucketVotes
    membership: Ints

    @property
    def n_buckets(self) -> int:
        """Number of buckets, B."""
        return self.served.n_buckets

    def win_duel(self, leader: Ints, rival: Ints) -> Ints:
        """Return how many buckets `rival` needs at least to win the duel against `leader`.

        A member that prefers the leader moves the duel by 2, an abstaining member by 1.
        """
        preferring = self.ballots.prefers(leader, rival)
        abstaining = self.ballots.first == ABSTAIN
        powers = 2 * bucket_sums(preferring, self.membership)
        powers += bucket_sums(abstaining, self.membership)
        votes = preferring.sum(axis=1)
        lead = 2 * votes - self.served.counts.sum(axis=1) + (leader < rival)
        return buckets_needed(powers, lead, 2 * self.served.degree)


def shared_ballots(ballots: Ballots, counts: NDArray[np.int32], membership: Ints) -> SharedBallots:
    """Join ballots with the members (B, d) of every bucket."""
    return SharedBallots(ballots, gather_votes(ballots.first, counts, membership), membership)


def shared_runoff_radius(shared: SharedBallots, labels: Ints) -> Ints:
    """Return how many buckets cannot change the winner; sound.

    As in `poisonproof.certificates.runoff`, the winner p falls if a label c overtakes all labels
    but p and wins the duel, or if two labels overtake p.
    """
    served, n_classes = shared.served, len(shared.served.by_class)
    shortest = np.full(len(labels), shared.n_buckets + 1, dtype=np.int64)
    for index in range(n_classes - 1):
        rival = other_label(index, labels)
        attack = shared.win_duel(labels, rival)
        for place in range(n_classes - 2):
            third = other_label(place, labels, rival)
            attack = np.maximum(attack, served.overtake(third, rival))
        shortest = np.minimum(shortest, attack)
    return _eliminating_attack(served, labels, shortest) - 1


def shared_targeted_radius(shared: SharedBallots, labels: Ints, target: Ints) -> Ints:
    """Return how many buckets cannot make the target win; sound.

    For some opponent o, the target and o must both overtake every third label, one by one and both
    together, and the target must win the duel against o.
    """
    served, n_classes = shared.served, len(shared.served.by_class)
    shortest = np.full(len(labels), shared.n_buckets + 1, dtype=np.int64)
    for index in range(n_classes - 1):
        opponent = other_label(index, target)
        attack = shared.win_duel(opponent, target)
        for place in range(n_classes - 2):
            third = other_label(place, target, opponent)
            for reach in (
                served.overtake(third, opponent),
                served.overtake(third, target),
                served.both_overtake(third, opponent, target),
            ):
                attack = np.maximum(attack, reach)
        shortest = np.minimum(shortest, attack)
    return np.where(labels == target, -1, shortest - 1)


def _eliminating_attack(served: BucketVotes, labels: Ints, shortest: Ints) -> Ints:
    """Lower `shortest` to the fewest buckets with which two labels may overtake the winner.

    A pair is looked at only on the rows where each label alone needs fewer buckets than the
    shortest attack known so far.
    """
    n_others = len(served.by_class) - 1
    rivals = [other_label(index, labels) for index in range(n_others)]
    alone = [served.overtake(labels, rival) for rival in rivals]
    shortest = shortest.copy()
    for one in range(n_others):
        for two in range(one):
            each = np.maximum(alone[one], alone[two])
            rows = np.flatnonzero(each < shortest)
            if len(rows):
                some = BucketVotes(served.by_class[:, rows], served.counts[rows], served.degree)
                both = some.both_overtake(labels[rows], rivals[one][rows], rivals[two][rows])
                shortest[rows] = np.minimum(shortest[rows], np.maximum(each[rows], both))
    return shortest
