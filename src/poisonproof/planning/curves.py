"""How members get better with more rows: measured on rows that the user trusts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.certificates import Certificates, certify_votes
from poisonproof.estimators import DPAClassifier
from poisonproof.exceptions import InvalidInputError, MemberWarning
from poisonproof.partition import sample_digests
from poisonproof.progress import Progress, reporting
from poisonproof.schema import held_out_rows

__all__ = ["CurvePoint", "LearningCurves", "measure_curves"]

FEWEST_MEMBERS = 5
"""Shares of fewer votes say little."""

MOST_MEMBERS = 100
MOST_TEST_ROWS = 2000
TEST_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class CurvePoint:
    """Members of one kind, trained on one number of rows each.

    Attributes
    ----------
    model : str
        The kind of member.
    rows_per_member : int
        Rows on average.
    n_members : int
        How many were trained and asked.
    margins : ndarray of shape (n,)
        For each test row the share of votes for its true label minus the largest other share, -1
        to 1; a row that the vote gets wrong has at most 0.
    accuracy : float
        Share of the test rows that the vote of these members gets right.
    member_accuracy : float
        Mean accuracy of single members.
    seconds : float
        To train one member and to ask it about the test rows.
    """

    model: str
    rows_per_member: int
    n_members: int
    margins: NDArray[np.float64]
    accuracy: float
    member_accuracy: float
    seconds: float


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """All points that were measured, and on what.

    Attributes
    ----------
    points : tuple of CurvePoint
    n_rows, n_test : int
        Trusted rows to train on, and to test.
    unit : {"row", "group"}
        What a partition is made of, and a radius counts.
    """

    points: tuple[CurvePoint, ...]
    n_rows: int
    n_test: int
    unit: str


def measure_curves(
    X: NDArray[Any],
    y: NDArray[Any],
    members: Mapping[str, Any],
    classes: NDArray[Any],
    *,
    groups: NDArray[Any] | None = None,
    sizes: Sequence[int] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> LearningCurves:
    """Train members on different numbers of trusted rows.

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
    sizes : sequence of int, optional
        Rows per member; by default from 2 C up to a fifth of the rows, doubling.
    n_jobs, progress
        How to train, and who is told.

    Returns
    -------
    LearningCurves

    Assumes
    -------
    Nobody who attacks the training data has written these rows.
    """
    test = held_out_rows(X, TEST_SHARE, groups)
    if not test.any() or (~test).sum() < 2 * FEWEST_MEMBERS * len(classes):
        raise InvalidInputError(
            f"{len(X):,} trusted rows are too few to measure anything: at least "
            f"{3 * FEWEST_MEMBERS * len(classes):,} are needed for {len(classes)} classes."
        )
    data = _TrustedRows(X, y, groups, np.asarray(classes), test)
    counts = list(sizes or _default_sizes(data.n_train, len(classes)))
    points = []
    with reporting(progress, len(counts) * len(members), "Measuring") as listener:
        for name, member in members.items():
            for size in counts:
                points.append(_measure(data, name, member, size, n_jobs))
                listener.advance()
    unit = "row" if groups is None else "group"
    return LearningCurves(tuple(points), data.n_train, len(data.test_rows), unit)


class _TrustedRows:
    """Trusted rows: those to train on in the order of their digests, and those to test on."""

    def __init__(
        self, X: Any, y: Any, groups: Any, classes: NDArray[Any], test: NDArray[np.bool_]
    ) -> None:
        self.X, self.y, self.groups, self.classes = X, y, groups, classes
        digests = sample_digests(X if groups is None else groups)
        order = np.lexsort(digests.T[::-1])
        self.train_rows = order[~test[order]]
        self.test_rows = order[test[order]][:MOST_TEST_ROWS]

    @property
    def n_train(self) -> int:
        return len(self.train_rows)


def _default_sizes(n_train: int, n_classes: int) -> list[int]:
    largest = n_train // FEWEST_MEMBERS
    size, sizes = 2 * n_classes, []
    while size < largest:
        sizes.append(size)
        size *= 2
    return [*sizes, largest]


def _measure(
    data: _TrustedRows, name: str, member: Any, size: int, n_jobs: int | None
) -> CurvePoint:
    n_members = max(1, min(MOST_MEMBERS, data.n_train // size))
    rows = data.train_rows[: n_members * size]
    classifier = DPAClassifier(
        clone(member),
        n_partitions=n_members,
        partitioner="content" if data.groups is None else "group",
        classes=data.classes,
        n_jobs=n_jobs,
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemberWarning)  # abstentions show in the margins
        classifier.fit(
            data.X[rows], data.y[rows], groups=None if data.groups is None else data.groups[rows]
        )
    votes = classifier.votes(data.X[data.test_rows])
    seconds = (time.perf_counter() - started) / n_members
    truth = np.searchsorted(classifier.classes_, data.y[data.test_rows])
    certificates = certify_votes(votes, len(classifier.classes_))
    return CurvePoint(
        model=name,
        rows_per_member=size,
        n_members=n_members,
        margins=_margins(certificates, truth),
        accuracy=float((certificates.labels == truth).mean()),
        member_accuracy=float((votes == truth[:, np.newaxis]).mean()),
        seconds=seconds,
    )


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
