"""The choice of k and of the kind of member, measured on rows that the user trusts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.plurality import certify_votes
from poisonproof.certificates.result import Certificates
from poisonproof.data.schema import held_out_rows
from poisonproof.evaluation.accuracy import (
    LEAST_LEARNED,
    Radii,
    majority_share,
    share_learned,
)
from poisonproof.exceptions import InvalidInputError, MemberWarning
from poisonproof.partition.canonical import sample_digests
from poisonproof.progress import Progress, reporting

FEWEST_MEMBERS = 5
"""Shares of fewer votes say little."""

MOST_MEMBERS = 100
MOST_TEST_ROWS = 2000
TEST_SHARE = 0.3
ACCURACY_LOSS = 0.05
"""Accuracy that a proposal may give up for a larger radius, where no radius is wanted."""


@dataclass(frozen=True, eq=False)
class CurvePoint:
    """Members of one kind, trained on one number of rows each.

    Attributes
    ----------
    model : str
        The kind of member.
    rows_per_member, n_members : int
        Training rows of each member, on average, and members trained.
    margins : ndarray of shape (n,)
        For each test row the share of votes for its true label minus the largest other share, -1
        to 1; a row that the vote gets wrong has at most 0.
    accuracy : float
        Share of the test rows that the vote of these members gets right.
    seconds : float
        Time to train one member and to let it vote on the test rows.
    """

    model: str
    rows_per_member: int
    n_members: int
    margins: NDArray[np.float64]
    accuracy: float
    seconds: float


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """All points that were measured, and on how many rows.

    Attributes
    ----------
    points : tuple of CurvePoint
        One per kind of member and number of rows.
    n_rows, n_test : int
        Trusted rows to train on, and to test.
    unit : {"row", "group"}
        What a partition is made of, and a radius counts.
    n_units : int
        Contributors to the rows to train on, or these rows.
    majority_share : float
        Accuracy of always predicting the commonest class on the test rows.
    """

    points: tuple[CurvePoint, ...]
    n_rows: int
    n_test: int
    unit: str
    n_units: int
    majority_share: float


def measure_curves(
    X: NDArray[Any],
    y: NDArray[Any],
    members: Mapping[str, Any],
    classes: NDArray[Any],
    *,
    groups: NDArray[Any] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> LearningCurves:
    """Train members on different numbers of trusted rows, and measure their votes.

    Parameters
    ----------
    X, y : arrays of shape (m, d) and (m,)
        Trusted rows. Three tenths of them, by hash, are tested on.
    members : mapping of str to classifier
        The kinds of member to try.
    classes : array of shape (C,)
        The label set.
    groups : array of shape (m,), optional
        Contributors; partitions are then made of whole contributors.
    n_jobs, progress
        Worker processes, and a listener.

    Returns
    -------
    LearningCurves
        For `make_plan`.

    Assumes
    -------
    Nobody who attacks the training data has written these rows.
    """
    from sklearn.base import clone

    from poisonproof.estimators.dpa import DPAClassifier

    test = held_out_rows(X, TEST_SHARE, groups)
    if not test.any() or (~test).sum() < 2 * FEWEST_MEMBERS * len(classes):
        raise InvalidInputError(
            f"{len(X):,} trusted rows are too few to measure anything: at least "
            f"{3 * FEWEST_MEMBERS * len(classes):,} are needed for {len(classes)} classes."
        )
    digests = sample_digests(X if groups is None else groups)
    order = np.lexsort(digests.T[::-1])
    train, tested = order[~test[order]], order[test[order]][:MOST_TEST_ROWS]
    counts = _default_sizes(len(train), len(classes))
    points = []
    with reporting(progress, len(counts) * len(members), "Measuring") as listener:
        for name, member in members.items():
            for size in counts:
                n_members = max(1, min(MOST_MEMBERS, len(train) // size))
                classifier = DPAClassifier(
                    clone(member),
                    n_partitions=n_members,
                    partitioner="content" if groups is None else "group",
                    classes=np.asarray(classes),
                    n_jobs=n_jobs,
                )
                rows = train[: n_members * size]
                own = None if groups is None else groups[rows]
                points.append(
                    _measure(name, size, classifier, (X[rows], y[rows], own), X[tested], y[tested])
                )
                listener.advance()
    unit = "row" if groups is None else "group"
    n_units = len(train) if groups is None else len(set(groups[train].tolist()))
    majority = majority_share(y[tested])
    return LearningCurves(tuple(points), len(train), len(tested), unit, n_units, majority)


def _default_sizes(n_train: int, n_classes: int) -> list[int]:
    """Return rows per member: from 2 C up to a fifth of the rows, doubling."""
    largest = n_train // FEWEST_MEMBERS
    size, sizes = 2 * n_classes, []
    while size < largest:
        sizes.append(size)
        size *= 2
    return [*sizes, largest]


def _measure(
    name: str, size: int, classifier: Any, rows: tuple[Any, Any, Any], X: Any, y: Any
) -> CurvePoint:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemberWarning)  # abstentions show in the margins
        classifier.fit(rows[0], rows[1], groups=rows[2])
    votes = classifier.votes(X)
    seconds = (time.perf_counter() - started) / classifier.n_partitions
    truth = np.searchsorted(classifier.classes_, y)
    certificates = certify_votes(votes, len(classifier.classes_))
    accuracy = float((certificates.labels == truth).mean())
    margins = _margins(certificates, truth)
    return CurvePoint(name, size, classifier.n_partitions, margins, accuracy, seconds)


def _margins(certificates: Certificates, truth: NDArray[np.intp]) -> NDArray[np.float64]:
    shares = certificates.counts / certificates.n_members
    rows = np.arange(len(truth))
    own = shares[rows, truth]
    shares[rows, truth] = -1.0
    margins: NDArray[np.float64] = own - shares.max(axis=1)
    # A tie that goes to another label is lost, whatever the margin says.
    won = certificates.labels == truth
    margins[~won] = np.minimum(margins[~won], 0.0)
    return margins


# From learning curves to a table over k, and a proposal.


@dataclass(frozen=True)
class PlanRow:
    """Expected results of one k and one kind of member.

    Attributes
    ----------
    model : str
        The kind of member.
    n_partitions, rows_per_member : int
        k, and the training rows of each member.
    accuracy : float
        Expected accuracy without an attack.
    median_radius : int
        Expected median radius: half of the rows stay correct up to it.
    seconds : float
        To train all members and to let them vote, in one process of the machine that measured.
    measured_members : int
        How many members the expectation rests on.
    """

    model: str
    n_partitions: int
    rows_per_member: int
    accuracy: float
    median_radius: int
    seconds: float
    measured_members: int


@dataclass(frozen=True)
class Plan:
    """A table, and the row that is proposed.

    Attributes
    ----------
    rows : tuple of PlanRow
        By kind of member, then by k.
    proposed : PlanRow
        One of these rows.
    reason : str
        Why this one, in words.
    """

    rows: tuple[PlanRow, ...]
    proposed: PlanRow
    reason: str


def make_plan(
    curves: LearningCurves,
    expected_rows: int,
    *,
    wanted_radius: int | None = None,
) -> Plan:
    """Expect accuracy and radius over k, and propose one.

    A member of an ensemble of k sees ``expected_rows / k`` rows. The votes of members of that size
    on trusted rows give the margin of every test row, and the radius is expected to be ``k * margin
    / 2``.

    Parameters
    ----------
    curves : LearningCurves
        The result of `measure_curves`.
    expected_rows : int
        Rows that will be trained on, a number known beforehand.
    wanted_radius : int, optional
        Propose the most accurate ensemble whose median radius reaches it. By default the largest
        median radius is proposed among those whose accuracy is at most 0.05 below the best.

    Returns
    -------
    Plan

    Examples
    --------
    >>> point = CurvePoint("tree", 20, 10, np.array([0.6, 0.8]), 1.0, 0.1)
    >>> plan = make_plan(LearningCurves((point,), 200, 2, "row", 200, 0.5), 2000)
    >>> plan.proposed.n_partitions, plan.proposed.median_radius
    (100, 40)
    """
    rows = tuple(
        _row(point, expected_rows // point.rows_per_member)
        for point in curves.points
        if expected_rows >= 2 * point.rows_per_member
    )
    if not rows:
        raise InvalidInputError(
            f"{expected_rows:,} rows are fewer than two members of the smallest measured size need."
        )
    # Contributors expected of so many rows: more partitions than that would stay empty.
    units = expected_rows * curves.n_units // curves.n_rows
    filled = [row for row in rows if row.n_partitions <= units]
    useful = [row for row in filled if _learned(row, curves) >= LEAST_LEARNED]
    if not useful:
        best = max(filled or rows, key=lambda row: row.accuracy)
        raise InvalidInputError(
            "No ensemble is expected to be much better than always predicting the commonest class, "
            f"which gets {100 * curves.majority_share:.1f} % right; the best gets "
            f"{100 * best.accuracy:.1f} % (k = {best.n_partitions:,}, {best.model}). What such a "
            "model withstands says little. Try other members or features, or fewer classes."
        )
    if wanted_radius is None:
        most_accurate = max(row.accuracy for row in useful)
        allowed = [row for row in useful if row.accuracy >= most_accurate - ACCURACY_LOSS]
        chosen = max(allowed, key=lambda row: (row.median_radius, row.accuracy))
        reason = (
            f"the largest median radius within {100 * ACCURACY_LOSS:g} points of the best accuracy"
        )
    else:
        reached = [row for row in useful if row.median_radius >= wanted_radius]
        if not reached:
            most = max(useful, key=lambda row: row.median_radius)
            raise InvalidInputError(
                f"No number of members is expected to reach a median radius of {wanted_radius:,}; "
                f"the largest is {most.median_radius:,} (k = {most.n_partitions:,}, {most.model}). "
                "Collect more rows, ask for a smaller radius, or try other members."
            )
        chosen = max(reached, key=lambda row: (row.accuracy, -row.n_partitions))
        reason = f"the best accuracy with a median radius of at least {wanted_radius:,}"
    ordered = sorted(filled, key=lambda row: (row.model, row.n_partitions))
    return Plan(tuple(ordered), chosen, reason)


def _learned(row: PlanRow, curves: LearningCurves) -> float:
    return share_learned(row.accuracy, curves.majority_share)


def _row(point: CurvePoint, k: int) -> PlanRow:
    return PlanRow(
        model=point.model,
        n_partitions=k,
        rows_per_member=point.rows_per_member,
        accuracy=point.accuracy,
        median_radius=Radii.of(np.floor(k * point.margins / 2)).median() or 0,
        seconds=k * point.seconds,
        measured_members=point.n_members,
    )
