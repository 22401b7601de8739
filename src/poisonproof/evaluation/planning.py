"""The choice of the method, k and the members, measured on rows that the user trusts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.result import Certificates, class_indices
from poisonproof.data.schema import held_out_rows
from poisonproof.evaluation.accuracy import Summary, summarize
from poisonproof.exceptions import InvalidInputError, MemberWarning
from poisonproof.partition.canonical import sample_digests
from poisonproof.progress import Progress, reporting

FEWEST_MEMBERS = 5
"""Shares of fewer votes say little."""

MOST_MEMBERS = 100
MOST_ROWS, MOST_TEST_ROWS = 20_000, 2000
"""Trusted rows that members are trained on, and tested on."""
MOST_VOTING, MOST_VOTED_ON = 4000, 1000
"""The same where rows vote: graphs and clusters of all rows take longer."""
TEST_SHARE = 0.3
COSINES = (0.8, 0.9, 0.95)
"""Thresholds of the neighbour votes that are measured."""
ACCURACY_LOSS = 0.05
"""Accuracy that a proposal may give up for a larger radius, where no radius is wanted; and at most
half of what the best gains over always predicting the commonest class."""


@dataclass(frozen=True, eq=False)
class CurvePoint:
    """One classifier, measured on trusted rows.

    Attributes
    ----------
    model : str
        The kind of member, or in words which rows vote.
    classifier : estimator
        The classifier.
    n_rows : int
        Rows that it was trained on.
    n_members : int or None
        Its members; None where training rows vote.
    certificates : Certificates
        Of the test rows, with class values.
    y_true : ndarray of shape (n,)
        Their labels.
    seconds : float
        Time to train it and to certify the test rows.
    """

    model: str
    classifier: Any
    n_rows: int
    n_members: int | None
    certificates: Certificates
    y_true: NDArray[Any]
    seconds: float

    @property
    def rows_per_member(self) -> int | None:
        """Training rows of each member; None where training rows vote."""
        return None if self.n_members is None else self.n_rows // self.n_members

    def expected(self, n_rows: int, n_units: int | None = None) -> PlanRow:
        """Return what to expect of so many training rows, of `n_units` contributors.

        Members of the same size are expected to vote in the same shares, however many they are.
        There are no more of them than contributors, and those whose partition a hash leaves without
        a contributor abstain. Where rows vote, more rows are expected to vote in the same shares;
        walks reach a number of rows that does not grow so, and their radius is only ever scaled
        down.
        """
        found, grown = self.certificates, n_rows / self.n_rows
        factor, k = min(grown, 1.0) if found.method == "label_flips" else grown, None
        radius = found.radius * factor
        if self.rows_per_member is not None and self.n_members is not None:
            k = n_rows // self.rows_per_member
            factor, place = k / self.n_members, np.arange(len(found))
            if n_units is not None:
                k = min(k, n_units)
                filled = k * (1 - (1 - 1 / k) ** n_units)
                factor = filled / np.count_nonzero(self.classifier.partition_sizes_)
            first, second = (
                found.counts[place, class_indices(labels, found.classes, found.n_classes)]
                for labels in (found.labels, found.runner_up)
            )
            radius = factor * (first - second) / 2 // found.threat.touches
        whole = replace(found, radius=np.floor(radius + 1e-9).astype(np.int64))
        seconds = self.seconds * (max(grown, 1.0) if k is None else factor)
        return PlanRow(self, k, factor, summarize(whole, self.y_true), seconds)


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """All points that were measured, and on how many rows.

    Attributes
    ----------
    points : tuple of CurvePoint
        One per kind of member and number of rows, and one per method in which rows vote.
    n_rows, n_test : int
        Trusted rows that were trained on at most, and tested on.
    n_units : int or None
        Contributors to the trusted rows; None where rows are counted.
    left_out : tuple of str
        Methods that these rows do not allow, and why.
    """

    points: tuple[CurvePoint, ...]
    n_rows: int
    n_test: int
    n_units: int | None = None
    left_out: tuple[str, ...] = ()


def measure_curves(
    X: NDArray[Any],
    y: NDArray[Any],
    members: Mapping[str, Any],
    classes: NDArray[Any],
    *,
    threat: str = "insert_delete",
    groups: NDArray[Any] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> LearningCurves:
    """Train members on different numbers of trusted rows, and the methods in which rows vote.

    Parameters
    ----------
    X, y : arrays of shape (m, d) and (m,)
        Trusted rows. Three tenths of them, by hash, are tested on. Of very many rows a part is
        used, chosen by hash, too.
    members : mapping of str to classifier
        The kinds of member to try.
    classes : array of shape (C,)
        The label set.
    threat : {"insert_delete", "label_flip"}, default="insert_delete"
        What the attacker does. Against flipped labels members get columns on one scale, and
        clusters and walks are measured, too.
    groups : array of shape (m,), optional
        Contributors; partitions are then made of whole contributors, and no rows vote.
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
    from sklearn.preprocessing import StandardScaler

    from poisonproof.estimators.dpa import DPAClassifier, SSDPAClassifier
    from poisonproof.evaluation.comparison import Comparison, candidates

    if threat not in ("insert_delete", "label_flip"):
        raise InvalidInputError(
            f"threat is 'insert_delete' or 'label_flip' in a plan. Got {threat!r}."
        )
    names = np.unique(np.asarray(classes))
    test = held_out_rows(X, TEST_SHARE, groups)
    if not test.any() or (~test).sum() < 2 * FEWEST_MEMBERS * len(names):
        raise InvalidInputError(
            f"{len(X):,} trusted rows are too few to measure anything: at least "
            f"{3 * FEWEST_MEMBERS * len(names):,} are needed for {len(names)} classes."
        )
    digests = sample_digests(X if groups is None else groups)
    order = np.lexsort(digests.T[::-1])
    train, tested = order[~test[order]][:MOST_ROWS], order[test[order]][:MOST_TEST_ROWS]
    counts = _default_sizes(len(train), len(names))
    few, some = train[:MOST_VOTING], tested[:MOST_VOTED_ON]
    indices = np.searchsorted(names, y)
    data = Comparison(
        "plan", "plan", X[few], indices[few], X[some], indices[some], "", names.tolist()
    )
    voting = [] if groups is not None else list(candidates(len(names), None, (), COSINES, n_jobs))
    voting = [candidate for candidate in voting if candidate.certified_threat == threat]
    options: dict[str, Any] = {} if groups is None else {"partitioner": "group"}
    options |= {"classes": names.tolist(), "n_jobs": n_jobs}
    kind: Any = DPAClassifier
    if threat == "label_flip":
        kind = partial(SSDPAClassifier, features=StandardScaler())
    points, left_out = [], list[str]()
    with reporting(progress, len(counts) * len(members) + len(voting), "Measuring") as listener:
        for name, member in members.items():
            for size in counts:
                n_members = max(1, min(MOST_MEMBERS, len(train) // size))
                classifier = kind(clone(member), n_partitions=n_members, **options)
                rows = train[: n_members * size]
                own = None if groups is None else groups[rows]
                points.append(
                    _measure(name, classifier, (X[rows], y[rows], own), X[tested], y[tested])
                )
                listener.advance()
        for candidate, method, seconds in data.run_all(voting, left_out.append, listener):
            chosen = candidate.trained.set_params(classes=names.tolist())
            found, truth = method.certificates, method.y_true
            point = CurvePoint(candidate.title, chosen, len(few), None, found, truth, seconds)
            points.append(point)
    n_units = None if groups is None else len(set(groups.tolist()))
    return LearningCurves(tuple(points), len(train), len(tested), n_units, tuple(left_out))


def _default_sizes(n_train: int, n_classes: int) -> list[int]:
    """Return rows per member: from 2 C up to a fifth of the rows, doubling."""
    largest = n_train // FEWEST_MEMBERS
    size, sizes = 2 * n_classes, []
    while size < largest:
        sizes.append(size)
        size *= 2
    return [*sizes, largest]


def _measure(
    name: str, classifier: Any, rows: tuple[Any, Any, Any], X: Any, y: NDArray[Any]
) -> CurvePoint:
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemberWarning)  # abstentions show in the votes
        classifier.fit(rows[0], rows[1], groups=rows[2])
    certificates = classifier.certify(X, require_declared=True)
    seconds = time.perf_counter() - started
    k = classifier.n_partitions
    return CurvePoint(name, classifier, len(rows[1]), k, certificates, y, seconds)


# From learning curves to a table, and a proposal.


@dataclass(frozen=True, eq=False)
class PlanRow:
    """Expected results of one classifier.

    Attributes
    ----------
    point : CurvePoint
        The measurement that they rest on.
    n_partitions : int or None
        k; None where training rows vote.
    factor : float
        What the measured leads or radii were multiplied by.
    summary : Summary
        Expected accuracy, radii and classes.
    seconds : float
        To train and to certify the test rows, in one process of the machine that measured.
    """

    point: CurvePoint
    n_partitions: int | None
    factor: float
    summary: Summary
    seconds: float

    @property
    def classifier(self) -> Any:
        """The classifier, not fitted."""
        from sklearn.base import clone

        k = {} if self.n_partitions is None else {"n_partitions": self.n_partitions}
        return clone(self.point.classifier).set_params(**k)

    @property
    def accuracy(self) -> float:
        """Expected accuracy without an attack."""
        return self.summary.clean_accuracy

    @property
    def median_radius(self) -> int:
        """Expected median radius: half of the rows stay correct up to it."""
        return self.summary.median_radius or 0

    def __str__(self) -> str:
        k = "" if self.n_partitions is None else f"k = {self.n_partitions:,}, "
        return f"{k}{self.point.model}"


@dataclass(frozen=True)
class Plan:
    """A table, and the row that is proposed.

    Attributes
    ----------
    rows : tuple of PlanRow
        By kind of member and by k, then those in which training rows vote.
    proposed : PlanRow
        One of these rows.
    reason : str
        Why this one, in words.
    """

    rows: tuple[PlanRow, ...]
    proposed: PlanRow
    reason: str

    @property
    def frontier(self) -> list[PlanRow]:
        """The rows that no other beats in accuracy and median radius, the most accurate first."""
        found: list[PlanRow] = []
        best = self.proposed  # before others that are as good
        order = sorted(self.rows, key=lambda r: (-r.accuracy, -r.median_radius, r is not best))
        for row in order:
            if not found or row.median_radius > found[-1].median_radius:
                found.append(row)
        return found


def make_plan(
    curves: LearningCurves,
    expected_rows: int,
    *,
    expected_contributors: int | None = None,
    wanted_radius: int | None = None,
) -> Plan:
    """Expect accuracy and radius of every method and k, and propose one.

    A member of an ensemble of k sees ``expected_rows / k`` rows. Members of that size, trained on
    trusted rows, give the expected lead of every test row, and k times half of it is its radius.
    Where training rows vote, the lead is expected to grow with their number.

    Parameters
    ----------
    curves : LearningCurves
        The result of `measure_curves`.
    expected_rows : int
        Rows that will be trained on, a number known beforehand.
    expected_contributors : int, optional
        Contributors to these rows, where partitions are made of contributors; by default no more
        than the trusted rows have. No ensemble is planned with more members.
    wanted_radius : int, optional
        Propose the most accurate classifier whose median radius reaches it. By default the largest
        median radius is proposed among those whose accuracy is at most 0.05 below the best, and
        that keep half of what the best gains over always predicting the commonest class.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof.members.closed_form import RidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> curves = measure_curves(X[:600], y[:600], {"ridge": RidgeClassifier()}, range(10))
    >>> plan = make_plan(curves, expected_rows=20_000, wanted_radius=50)
    >>> plan.proposed.median_radius >= 50
    True
    """
    units = expected_contributors or curves.n_units
    rows = tuple(
        point.expected(expected_rows, units)
        for point in curves.points
        if expected_rows >= 2 * (point.rows_per_member or 1)
    )
    if not any(row.n_partitions for row in rows):
        raise InvalidInputError(
            f"{expected_rows:,} rows are fewer than two members of the smallest measured size need."
        )
    # Where contributors limit k, members have more rows than measured: the largest come closest.
    rows = tuple({(row.point.model, row.n_partitions): row for row in rows}.values())
    useful = [row for row in rows if row.summary.worthy]
    best = max(useful or rows, key=lambda row: row.accuracy)
    majority = best.summary.majority_share
    if not useful:
        raise InvalidInputError(
            "No method is expected to be much better than always predicting the commonest class, "
            f"which gets {100 * majority:.1f} % right; the best gets "
            f"{100 * best.accuracy:.1f} % ({best}). What such a "
            "model withstands says little. Try other members or features, or fewer classes."
        )
    if wanted_radius is None:
        loss = min(ACCURACY_LOSS, (best.accuracy - majority) / 2)
        allowed = [row for row in useful if row.accuracy >= best.accuracy - loss]
        chosen = max(allowed, key=lambda row: (row.median_radius, row.accuracy))
        reason = f"the largest median radius within {100 * loss:.2g} points of the best accuracy"
    else:
        reached = [row for row in useful if row.median_radius >= wanted_radius]
        if not reached:
            most = max(useful, key=lambda row: row.median_radius)
            limit = f"With {units} contributors no radius exceeds {(units or 0) // 2}. "
            raise InvalidInputError(
                f"No method is expected to reach a median radius of {wanted_radius:,}; "
                f"the largest is {most.median_radius:,} ({most}). "
                f"{'' if units is None else limit}"
                "Collect more rows, ask for a smaller radius, or try other members."
            )
        chosen = max(reached, key=lambda row: (row.accuracy, row.median_radius))
        reason = f"the best accuracy with a median radius of at least {wanted_radius:,}"
    ordered = sorted(
        rows,
        key=lambda row: (row.n_partitions is None, row.point.model, row.n_partitions or 0),
    )
    return Plan(tuple(ordered), chosen, reason)
