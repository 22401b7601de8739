"""From a score matrix to certificates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.ballots import Ballots, check_scores, read_ballots
from poisonproof.certificates.counting import count_votes
from poisonproof.certificates.finite_aggregation import block_height, certify_finite_aggregation
from poisonproof.certificates.plurality import certify_votes, check_target
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.runoff import elect, runoff_radius
from poisonproof.certificates.runoff_finite_aggregation import (
    shared_ballots,
    shared_runoff_radius,
    shared_targeted_radius,
)
from poisonproof.certificates.runoff_targeted import runoff_targeted_radius
from poisonproof.certificates.spread import Spread, check_membership
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.exceptions import InvalidInputError

__all__ = ["METHODS", "certify_scores"]

METHODS = ("runoff", "plurality")

Ints = NDArray[np.int64]


def certify_scores(
    scores: ArrayLike,
    method: str = "runoff",
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
    membership: Spread | ArrayLike | None = None,
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
    membership : Spread or array-like of int, shape (B, d), optional
        For members that share buckets (finite aggregation): row b lists the members that can
        change when bucket b changes, and ``threat.touches`` counts buckets. By default every
        member has a partition of its own.

    Returns
    -------
    Certificates
        With class indices as labels, first choices as counts and, in a run-off, the other finalist
        as runner-up.

    Guarantee
    ---------
    An attack of at most ``radius`` units leaves the label as it is (with `target`: keeps it from
    becoming the target). Where every bucket serves one member the radius is tight: some change of
    orders within reach of ``radius + 1`` units succeeds, unless there is only one class. Where
    buckets share members it is sound, but may be smaller than the truth.

    Assumes
    -------
    One unit of attack changes at most ``threat.touches`` members (buckets), and a member's scores
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
    members = None if membership is None else check_membership(membership, k)
    targets = None if target is None else check_target(target, n, n_classes)
    if method == "plurality":
        first = np.empty((n, k), dtype=np.int16)
        for rows, ballots in read_ballots(scores):
            first[rows] = ballots.first
        if members is None:
            return certify_votes(first, n_classes, threat, targets)
        return certify_finite_aggregation(first, n_classes, members, threat, targets)
    labels, finalists, radius = (np.empty(n, dtype=np.int64) for _ in range(3))
    counts = np.empty((n, n_classes), dtype=np.int32)
    for rows, ballots in read_ballots(scores, _height(members, n_classes)):
        counts[rows] = count_votes(ballots.first, n_classes)
        labels[rows], finalists[rows] = elect(ballots, counts[rows])
        aimed = None if targets is None else targets[rows]
        radius[rows] = _radius(ballots, counts[rows], labels[rows], aimed, members)
    return Certificates(
        labels,
        radius // threat.touches,
        finalists,
        counts,
        threat=threat,
        n_members=k,
        target=targets,
        method="runoff" if members is None else "runoff_finite_aggregation",
    )


def _height(members: Ints | None, n_classes: int) -> int | None:
    return None if members is None else block_height(len(members), n_classes)


def _radius(
    ballots: Ballots,
    counts: NDArray[np.int32],
    labels: Ints,
    target: Ints | None,
    members: Ints | None,
) -> Ints:
    """Return the radius in members, or in buckets where `members` lists those of each bucket."""
    if members is not None and members.shape[1] > 1:
        shared = shared_ballots(ballots, counts, members)
        if target is None:
            return shared_runoff_radius(shared, labels)
        return shared_targeted_radius(shared, labels, target)
    # A bucket that serves one member is that member's partition: the exact radius holds.
    if target is None:
        return runoff_radius(ballots, counts, labels)
    return runoff_targeted_radius(ballots, counts, labels, target)
