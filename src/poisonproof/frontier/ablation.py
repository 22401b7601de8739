"""What if members were better, or wrong elsewhere: certificates of votes changed on purpose.

These are no certificates of anything that exists. They say which property of the members keeps a
result below a goal: how often they are right, or that they are wrong on the same test rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.frontier.evidence import certify_evidence
from poisonproof.frontier.goals import Goal
from poisonproof.frontier.method import Method

__all__ = ["Shortfall", "can_be_ablated", "cluster_agreement", "shortfall"]

_PLURALITY = ("dpa", "ss-dpa", "neighbors")


@dataclass(frozen=True)
class Shortfall:
    """What keeps one method below a goal.

    Attributes
    ----------
    right : float
        Share of all votes on test rows that are right; of neighbour votes, of those given.
    limit : int
        The median if every vote were right.
    spread : int
        The median if mistakes fell on all test rows and wrong labels alike, as many as now.
    needed : float or None
        The share of right votes with which the goal is reached, where every test row gets the
        same share of its wrong votes corrected; None where the limit is below the goal.
    """

    right: float
    limit: int
    spread: int
    needed: float | None


def can_be_ablated(method: Method) -> bool:
    """Say whether a method's counts of votes are all that its certificates depend on."""
    return method.family in _PLURALITY


def shortfall(method: Method, goal: Goal) -> Shortfall:
    """Return what keeps a method below a goal.

    Parameters
    ----------
    method : Method
        A method for which `can_be_ablated` holds.
    goal : Goal
        The goal.
    """
    counts = np.asarray(method.certificates.counts, dtype=np.int64)
    limit = _with_counts(method, _corrected(counts, method.y_true, 1.0))
    needed = None
    if goal.reached_by(limit):
        share = _smallest_correction(method, counts, goal)
        needed = _right(method, _corrected(counts, method.y_true, share))
    even = _with_counts(method, _even(counts, method.y_true))
    return Shortfall(_right(method, counts), limit.median or 0, even.median or 0, needed)


def cluster_agreement(method: Method) -> float | None:
    """Return the share of training rows whose label is their cluster's class.

    Of the clusters that hold test rows; None for methods without clusters.
    """
    if not method.family.startswith("clusters"):
        return None
    certificates = method.certificates
    clusters = np.unique(np.column_stack([certificates.labels, certificates.counts]), axis=0)
    labels, counts = clusters[:, 0].astype(np.int64), clusters[:, 1:]
    return float(counts[np.arange(len(counts)), labels].sum() / counts.sum())


def _smallest_correction(method: Method, counts: NDArray[np.int64], goal: Goal) -> float:
    """Return the share of wrong votes that must be corrected, to a tenth of a percent."""
    fails, reaches = 0, 1000
    while reaches - fails > 1:
        middle = (fails + reaches) // 2
        changed = _with_counts(method, _corrected(counts, method.y_true, middle / 1000))
        fails, reaches = (fails, middle) if goal.reached_by(changed) else (middle, reaches)
    return reaches / 1000


def _corrected(counts: NDArray[np.int64], y: NDArray[Any], share: float) -> NDArray[np.int64]:
    """Give a share of every test row's wrong votes to its true label, in proportion."""
    rows = np.arange(len(counts))
    wrong = counts.copy()
    wrong[rows, y] = 0
    exact = share * wrong
    moved = np.floor(exact).astype(np.int64)
    # What rounding down leaves goes to the labels that lost most by it.
    left = np.rint(exact.sum(axis=1)).astype(np.int64) - moved.sum(axis=1)
    lost = np.argsort(np.argsort(moved - exact, axis=1, kind="stable"), axis=1)
    moved = np.minimum(moved + (lost < left[:, None]), wrong)
    corrected: NDArray[np.int64] = counts - moved
    corrected[rows, y] += moved.sum(axis=1)
    return corrected


def _even(counts: NDArray[np.int64], y: NDArray[Any]) -> NDArray[np.int64]:
    """Spread all mistakes evenly over test rows and wrong labels, rounded against the winner."""
    n, n_classes = counts.shape
    right = int(counts[np.arange(n), y].sum())
    each = -(-(int(counts.sum()) - right) // (n * max(1, n_classes - 1)))
    even = np.full((n, n_classes), each, dtype=np.int64)
    even[np.arange(n), y] = right // n
    return even


def _right(method: Method, counts: NDArray[np.int64]) -> float:
    votes = (
        int(counts.sum()) if method.family == "neighbors" else counts.shape[0] * _members(method)
    )
    return float(counts[np.arange(len(counts)), method.y_true].sum() / votes)


def _with_counts(method: Method, counts: NDArray[np.int64]) -> Method:
    certificates = method.certificates
    evidence = {
        "counts": counts,
        "n_members": np.asarray(_members(method)),
        "method": np.asarray(certificates.method),
    }
    return replace(method, certificates=certify_evidence(evidence, certificates.threat))


def _members(method: Method) -> int:
    return int(method.certificates.n_members)
