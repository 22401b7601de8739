"""Certificates for members that share buckets of rows: finite aggregation, its vote and run-off.

A row falls into one of B buckets, and a bucket serves d members, so an attacker who owns a bucket
owns d votes. The *power* of a bucket over a gap between two labels is the sum, over its members, of
the most by which a change of that member's vote closes the gap. Buckets share members, and counting
a member twice only makes the attacker look stronger: closing a gap takes at least as many buckets
as the strongest ones need to sum up to it (Wang, Levine and Feizi, ICML 2022).
"""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.plurality import (
    ABSTAIN,
    check_n_classes,
    check_target,
    check_votes,
    count_votes,
    plurality,
)
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.runoff import (
    Ballots,
    check_scores,
    elect,
    read_ballots,
    runoff_radius,
    runoff_targeted_radius,
)
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.exceptions import InvalidInputError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BucketVotes:
    """The votes of the members that every bucket serves, on h rows."""

    by_class: NDArray[np.int32]  # (C, h, B): how many of a bucket's members vote for a class
    counts: Ints  # (h, C): votes per class over all members
    degree: int  # members per bucket, d

    @property
    def n_buckets(self) -> int:
        """Number of buckets, B."""
        return int(self.by_class.shape[2])

    def of(self, labels: Ints) -> NDArray[np.int32]:
        """Return the votes that each bucket's members give to one label per row, (h, B)."""
        return self.by_class[labels, np.arange(len(labels))]

    def gap(self, leader: Ints, rival: Ints) -> Ints:
        """Return what `rival` must gain on `leader` to overtake it; <= 0 where it is ahead."""
        rows = np.arange(len(leader))
        lead: Ints = self.counts[rows, leader] - self.counts[rows, rival] + (rival > leader)
        return lead

    def overtake(self, leader: Ints, rival: Ints) -> Ints:
        """Return how many buckets `rival` needs at least to overtake `leader`.

        A vote for the leader can move the gap by 2, one for the rival not at all, any other and an
        abstention by 1: the power is d + (votes for the leader) - (votes for the rival).
        """
        powers = self.of(leader) - self.of(rival) + self.degree
        return buckets_needed(powers, self.gap(leader, rival), 2 * self.degree)

    def both_overtake(self, leader: Ints, one: Ints, two: Ints) -> Ints:
        """Return how many buckets two rivals need at least, for the sum of their gaps to close.

        A vote for the leader can move that sum by 3, one for a rival not at all, any other by 1.
        """
        powers = 2 * self.of(leader) - self.of(one) - self.of(two) + self.degree
        gaps = self.gap(leader, one) + self.gap(leader, two)
        return buckets_needed(powers, gaps, 3 * self.degree)


def gather_votes(votes: NDArray[Any], counts: NDArray[Any], membership: Ints) -> BucketVotes:
    """Count the votes of each bucket's members: votes (h, k) and members (B, d) of the buckets."""
    degree, n_classes = membership.shape[1], counts.shape[1]
    by_class = np.zeros((n_classes, len(votes), len(membership)), dtype=_dtype(degree * n_classes))
    for place in range(degree):
        served = votes[:, membership[:, place]]
        for label in range(n_classes):
            by_class[label] += served == label
    return BucketVotes(by_class, counts.astype(np.int64), degree)


def bucket_sums(values: NDArray[Any], membership: Ints) -> NDArray[Any]:
    """Sum a small number per member over the members of every bucket: (h, k) to (h, B)."""
    sums = np.zeros((len(values), len(membership)), dtype=_dtype(2 * membership.shape[1]))
    for place in range(membership.shape[1]):
        sums += values[:, membership[:, place]]
    return sums


def buckets_needed(powers: NDArray[Any], gap: Ints, highest: int) -> Ints:
    """Return how many buckets, strongest first, sum up to the gap of every row; B + 1 if all fail.

    Powers have the shape (h, B) and lie between 0 and `highest`; 0 buckets reach a gap <= 0.

    Examples
    --------
    >>> buckets_needed(np.array([[1, 2, 0, 2]] * 4), np.array([0, 3, 5, 6]), highest=2)
    array([0, 2, 3, 5])
    """
    # There are few different powers, so they are counted instead of sorted.
    with_power = count_votes(powers, highest + 1)
    missing, needed = np.maximum(gap, 0), np.zeros(len(gap), dtype=np.int64)
    for power in range(highest, 0, -1):
        used = np.minimum(with_power[:, power], -(-missing // power))
        needed += used
        missing = np.maximum(missing - used * power, 0)
    return np.where(missing > 0, powers.shape[1] + 1, needed)


def other_label(index: int, *excluded: Ints) -> Ints:
    """Return the label at position `index` among those not excluded, row by row.

    Examples
    --------
    >>> other_label(1, np.array([0, 1, 2]), np.array([1, 0, 0]))
    array([3, 3, 3])
    """
    label = np.full(excluded[0].shape, index, dtype=np.int64)
    for smaller in np.sort(np.stack(excluded), axis=0):
        label += label >= smaller
    return label


def _dtype(largest: int) -> type[Any]:
    """Return the narrowest type for sums up to four times `largest`, signed."""
    return np.int16 if 4 * largest <= np.iinfo(np.int16).max else np.int32


# The buckets and the members that they serve.


@dataclass(frozen=True)
class Spread:
    """Assignment of k d buckets of rows to k d members, d buckets to the member.

    A row falls into one bucket. Bucket b serves the members (b + r) mod k d for every offset r, and
    so member j trains on the buckets (j - r) mod k d: about 1/k of all rows, as with k disjoint
    partitions, and every row reaches d members. The structure depends on k, d and the offsets
    alone, never on data.

    Parameters
    ----------
    n_partitions : int
        k, the inverse of the share of rows that one member sees.
    offsets : tuple of int
        d distinct numbers from 0 to k d - 1.

    Examples
    --------
    >>> spread = Spread(n_partitions=2, offsets=(0, 1))
    >>> spread.members_of_bucket.tolist()
    [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> spread.buckets_of_member.tolist()
    [[0, 3], [1, 0], [2, 1], [3, 2]]
    """

    n_partitions: int
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_partitions", _integer("n_partitions", self.n_partitions, 1))
        offsets = tuple(_integer("An offset", offset, 0) for offset in self.offsets)
        object.__setattr__(self, "offsets", offsets)
        if not offsets or len(set(offsets)) < len(offsets) or max(offsets) >= self.n_buckets:
            raise InvalidInputError(
                f"offsets are at least one distinct number below n_partitions * len(offsets) = "
                f"{self.n_buckets}. Got {offsets}."
            )

    @property
    def degree(self) -> int:
        """Members that a bucket serves, and buckets that a member trains on: d."""
        return len(self.offsets)

    @property
    def n_buckets(self) -> int:
        """Number of buckets, and of members: k d."""
        return self.n_partitions * self.degree

    @property
    def members_of_bucket(self) -> NDArray[np.int64]:
        """Members that each bucket serves, shape (k d, d)."""
        return self._shifted(np.array(self.offsets, dtype=np.int64))

    @property
    def buckets_of_member(self) -> NDArray[np.int64]:
        """Buckets that each member trains on, shape (k d, d)."""
        return self._shifted(-np.array(self.offsets, dtype=np.int64))

    def _shifted(self, by: NDArray[np.int64]) -> NDArray[np.int64]:
        shifted: NDArray[np.int64] = (np.arange(self.n_buckets)[:, None] + by) % self.n_buckets
        return shifted


def make_spread(n_partitions: int, degree: int, seed: int = 0) -> Spread:
    """Draw the offsets of a spread from a seed, the same on every machine and version.

    Examples
    --------
    >>> make_spread(50, degree=4).n_buckets
    200
    >>> make_spread(50, degree=4) == make_spread(50, degree=4, seed=0)
    True
    """
    n_buckets = _integer("n_partitions", n_partitions, 1) * _integer("degree", degree, 1)
    key = f"poisonproof spread {n_partitions} {degree} {_integer('seed', seed, 0)}"
    offsets: dict[int, None] = {}
    draw = 0
    while len(offsets) < degree:
        digest = hashlib.sha256(f"{key} {draw}".encode()).digest()
        offsets[int.from_bytes(digest[:16], "big") % n_buckets] = None
        draw += 1
    return Spread(n_partitions, tuple(offsets))


def check_membership(membership: Spread | ArrayLike, n_members: int) -> NDArray[np.int64]:
    """Return the members of every bucket, shape (B, d), or raise if they are no members."""
    if isinstance(membership, Spread) and membership.n_buckets != n_members:
        raise InvalidInputError(
            f"The spread of {membership.n_partitions} partitions, degree {membership.degree}, has "
            f"{membership.n_buckets} members, but there are votes of {n_members}. Members that no "
            "bucket serves would count as beyond the attacker's reach."
        )
    array: NDArray[Any] = (
        membership.members_of_bucket if isinstance(membership, Spread) else np.asarray(membership)
    )
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "iu":
        raise InvalidInputError(
            "membership is a Spread, or lists the members of every bucket as integers, one row per "
            f"bucket. Got shape {array.shape} of dtype {array.dtype}."
        )
    if int(array.min()) < 0 or int(array.max()) >= n_members:
        raise InvalidInputError(
            f"membership names the members 0 to {n_members - 1}, one per column of the votes. Got "
            f"{int(array.min())} to {int(array.max())}."
        )
    members = np.sort(array.astype(np.int64), axis=1)
    repeats = (members[:, 1:] == members[:, :-1]).any(axis=1)
    if repeats.any():
        raise InvalidInputError(f"Bucket {int(repeats.argmax())} names a member twice.")
    return members


def _integer(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool | np.bool_) or number < least:
        raise InvalidInputError(f"{name} is an integer, at least {least}. Got {value!r}.")
    return number


# The plurality vote.

_BLOCK = 1 << 22  # bucket votes held together; bounds the temporary arrays


def certify_finite_aggregation(
    votes: ArrayLike,
    n_classes: int,
    membership: Spread | ArrayLike,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
) -> Certificates:
    """Certify the plurality label of members that share buckets of rows.

    Parameters
    ----------
    votes : array-like of int, shape (n, k)
        Class indices, -1 where a member abstains; read in pieces.
    n_classes : int
        Number of classes, C; declared.
    membership : Spread or array-like of int, shape (B, d)
        Row b lists the members that can change when bucket b changes.
    threat : str or Threat
        As in `certify_votes`; ``touches`` counts buckets here.
    target : int or array-like of int, shape (n,), optional
        Certify against this label only. -1 where the target already wins.

    Returns
    -------
    Certificates
        Without a target the runner-up is the label that needs fewest buckets to overtake.

    Guarantee
    ---------
    An attack of at most ``radius`` units leaves the label as it is (with `target`: keeps it from
    becoming the target). Buckets that serve one member each give the radii of `certify_votes`,
    which are exact. Where buckets share members the radius is sound, but an attacker whose
    strongest buckets overlap may need more than ``radius + 1`` units.

    Assumes
    -------
    One unit of attack changes at most ``threat.touches`` buckets, and a bucket changes only the
    members that `membership` lists for it.

    Examples
    --------
    >>> spread = Spread(n_partitions=3, offsets=(0, 1))
    >>> certify_finite_aggregation([[0, 0, 0, 0, 0, 1]], 2, spread).radius
    array([1])
    """
    threat = parse_threat(threat)
    n_classes = check_n_classes(n_classes)
    votes = check_votes(votes)
    n, k = votes.shape
    members = check_membership(membership, k)
    targets = None if target is None else check_target(target, n, n_classes)
    counts = count_votes(votes, n_classes)
    labels, runner_up = plurality(counts)
    radius = np.empty(n, dtype=np.int64)
    height = block_height(len(members), n_classes)
    for top in range(0, n, height):
        rows = slice(top, min(top + height, n))
        served = gather_votes(votes[rows], counts[rows], members)
        if targets is None:
            radius[rows], runner_up[rows] = _untargeted(served, labels[rows])
        else:
            radius[rows] = _targeted(served, labels[rows], targets[rows])
    return Certificates(
        labels,
        radius // threat.touches,
        runner_up,
        counts,
        threat=threat,
        n_members=k,
        target=targets,
        method="finite_aggregation",
    )


def block_height(n_buckets: int, n_classes: int) -> int:
    """Return how many rows are certified together."""
    return max(1, _BLOCK // (n_buckets * n_classes))


def _untargeted(served: BucketVotes, labels: Ints) -> tuple[Ints, Ints]:
    """Return the radius in buckets and the closest label: the fewest buckets that overtake."""
    shortest = np.full(len(labels), served.n_buckets + 1, dtype=np.int64)
    smallest = np.full(len(labels), np.iinfo(np.int64).max)
    closest = labels.copy()
    for index in range(len(served.by_class) - 1):
        rival = other_label(index, labels)
        attack, gap = served.overtake(labels, rival), served.gap(labels, rival)
        # Of the labels that need the same number of buckets, the one with the smaller gap.
        closer = (attack < shortest) | ((attack == shortest) & (gap < smallest))
        closest, smallest = np.where(closer, rival, closest), np.where(closer, gap, smallest)
        shortest = np.minimum(shortest, attack)
    return shortest - 1, closest


def _targeted(served: BucketVotes, labels: Ints, target: Ints) -> Ints:
    """Return how many buckets cannot make the target win.

    The target q must overtake every label. For any set of m labels the sum of their leads over q
    must fall to zero, and a change closes it by m, or m + 1 where the vote was for one of the set.
    The sets that matter are the labels with the largest leads; each gives a bound, the largest
    counts. For buckets of one member this is the exact radius of `targeted_radius`.
    """
    n_rows, n_classes = served.counts.shape
    rows = np.arange(n_rows)
    leads = served.counts + (np.arange(n_classes) < target[:, None])
    leads -= served.counts[rows, target][:, None]
    leads[rows, target] = -leads.max() - served.counts.sum() - 1  # last in any order
    strongest = np.argsort(-leads, axis=1, kind="stable")
    others = served.degree - served.of(target)  # members of a bucket that do not vote for q
    of_set: NDArray[Any] = np.zeros_like(others)
    lead_of_set, needed = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    for size in range(1, n_classes):
        label = strongest[:, size - 1]
        lead_of_set += np.maximum(leads[rows, label], 0)
        of_set = of_set + served.of(label)
        powers = size * others + of_set
        # A lead below zero would only weaken the bound: such sets are passed over.
        useful = leads[rows, label] > 0
        if not useful.any():
            break
        bound = buckets_needed(powers, lead_of_set, (size + 1) * served.degree)
        needed = np.maximum(needed, np.where(useful, bound, 0))
    return np.where(labels == target, -1, needed - 1)


# The run-off election. A way to win is a set of gaps to close; it needs at least as many buckets as
# the widest of them, and the attacker takes the cheapest way.


def certify_shared_runoff(
    scores: ArrayLike,
    membership: Spread | ArrayLike,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
) -> Certificates:
    """Certify a run-off election among members that share buckets of rows.

    Parameters
    ----------
    scores : array-like of float, shape (n, k, C)
        As for `certify_scores`.
    membership, threat, target
        As for `certify_finite_aggregation`.

    Guarantee
    ---------
    As for `certify_finite_aggregation`. Where every bucket serves one member, the radii are those
    of `certify_scores`, which are exact.
    """
    threat = parse_threat(threat)
    scores = check_scores(scores)
    n, k, n_classes = scores.shape
    members = check_membership(membership, k)
    targets = None if target is None else check_target(target, n, n_classes)
    labels, finalists, radius = (np.empty(n, dtype=np.int64) for _ in range(3))
    counts = np.empty((n, n_classes), dtype=np.int32)
    for rows, ballots in read_ballots(scores, block_height(len(members), n_classes)):
        counts[rows] = count_votes(ballots.first, n_classes)
        labels[rows], finalists[rows] = elect(ballots, counts[rows])
        aimed = None if targets is None else targets[rows]
        radius[rows] = _runoff_radius(ballots, counts[rows], labels[rows], aimed, members)
    return Certificates(
        labels,
        radius // threat.touches,
        finalists,
        counts,
        threat=threat,
        n_members=k,
        target=targets,
        method="runoff_finite_aggregation",
    )


def _runoff_radius(
    ballots: Ballots, counts: NDArray[np.int32], labels: Ints, target: Ints | None, members: Ints
) -> Ints:
    if members.shape[1] == 1:  # a bucket that serves one member is that member's partition
        if target is None:
            return runoff_radius(ballots, counts, labels)
        return runoff_targeted_radius(ballots, counts, labels, target)
    shared = shared_ballots(ballots, counts, members)
    if target is None:
        return shared_runoff_radius(shared, labels)
    return shared_targeted_radius(shared, labels, target)


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
