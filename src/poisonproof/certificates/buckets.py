"""What one bucket can do: its power over a gap in the votes, and how many buckets close a gap.

An attacker who owns a bucket owns the votes of the members it serves. The *power* of a bucket over
a gap is the sum, over its members, of the most by which a change of that member's vote closes the
gap. Buckets share members, and a member counted twice only makes the attacker look stronger: to
close a gap, at least as many buckets are needed as it takes the strongest to sum up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.counting import count_votes

__all__ = ["BucketVotes", "bucket_sums", "buckets_needed", "gather_votes", "other_label"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BucketVotes:
    """The votes of the members that every bucket serves, on h rows.

    Attributes
    ----------
    by_class : ndarray of shape (C, h, B)
        How many of the members that a bucket serves vote for a class.
    counts : ndarray of shape (h, C)
        Votes per class over all members.
    degree : int
        Members per bucket, d.
    """

    by_class: NDArray[np.int32]
    counts: Ints
    degree: int

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
    """Return how many buckets, strongest first, sum up to the gap of every row.

    Parameters
    ----------
    powers : ndarray of int, shape (h, B)
        Power of every bucket, from 0 to `highest`.
    gap : ndarray of int, shape (h,)
        What is to be reached; 0 buckets reach a gap <= 0.
    highest : int
        Largest possible power.

    Returns
    -------
    ndarray of shape (h,)
        The number of buckets, B + 1 where all together do not reach the gap.

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

    Parameters
    ----------
    index : int
        From 0 to the number of remaining labels minus one.
    *excluded : ndarray of int, shape (h,)
        Labels left out, different from each other in every row.

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
