"""Finite aggregation: plurality votes of members that share buckets of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.buckets import BucketVotes, buckets_needed, gather_votes, other_label
from poisonproof.certificates.counting import check_n_classes, check_votes, count_votes
from poisonproof.certificates.plurality import check_target, plurality
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.spread import Spread, check_membership
from poisonproof.certificates.threats import Threat, parse_threat

__all__ = ["block_height", "certify_finite_aggregation"]

Ints = NDArray[np.int64]

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
