"""The numbers of one row, and whether they agree with the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poisonproof.certificates import (
    Certificates,
    certify_finite_aggregation,
    certify_votes,
    make_spread,
)
from poisonproof.evaluation import (
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    median_radius,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.recipe import PaperNumbers
from poisonproof.reproduction.result import RowResult

__all__ = ["Outcome", "certify_result", "disagreements", "evaluate"]

POINTS = 1.0
"""Accuracies may differ by this many percentage points."""

SHARE = 0.03
"""Medians may differ by this share of the paper's, or by 1."""


@dataclass(frozen=True)
class Outcome:
    """What a finished row came to.

    Attributes
    ----------
    clean, base : float
        Accuracy of the ensemble and mean accuracy of its members, in percent.
    median : int or None
        Largest attack size with a certified accuracy of at least one half.
    at_median, after_median : float or None
        Certified accuracy at `median` and at one more, in percent.
    """

    clean: float
    base: float
    median: int | None
    at_median: float | None
    after_median: float | None

    @property
    def published(self) -> int | None:
        """The median as the paper counts: attack sizes from 0 on, so one more."""
        return None if self.median is None else self.median + 1

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "clean_percent": round(self.clean, 4),
            "base_percent": round(self.base, 4),
            "median_radius": self.median,
            "published_median": self.published,
            "certified_percent_at_median": self.at_median,
            "certified_percent_after_median": self.after_median,
        }


def certify_result(result: RowResult) -> Certificates:
    """Return the certificates of all test images against the threat of the row."""
    if not result.is_complete:
        raise InvalidInputError(
            f"{result.row} has {len(result.members)} of {result.n_partitions} members; a "
            "certificate needs all. Go on with --resume-from."
        )
    degree = int(result.law.get("degree", 1))
    if degree == 1:
        return certify_votes(result.signed_votes, result.n_classes, threat=result.threat)
    spread = make_spread(result.n_partitions // degree, degree)
    return certify_finite_aggregation(
        result.signed_votes, result.n_classes, spread, threat=result.threat
    )


def evaluate(result: RowResult) -> Outcome:
    """Certify a finished row and compute its numbers."""
    certificates = certify_result(result)
    median = median_radius(certificates, result.labels)
    around: list[float | None] = [None, None]
    if median is not None:
        shares = certified_accuracy(certificates, result.labels, [median, median + 1])
        around = [round(100 * float(share), 4) for share in shares]
    return Outcome(
        100 * clean_accuracy(certificates, result.labels),
        100 * base_accuracy(certificates, result.labels),
        median,
        *around,
    )


def disagreements(ours: Outcome, paper: PaperNumbers) -> list[str]:
    """Return in words what lies outside the tolerance; nothing where all agrees.

    Examples
    --------
    >>> ours = Outcome(95.0, 77.2, 440, 50.1, 49.9)
    >>> disagreements(ours, PaperNumbers(95.85, 76.97, 448))
    []
    >>> disagreements(ours, PaperNumbers(97.0, 76.97, None))
    ['clean -2.00 points', 'median 441, paper none']
    """
    found = [
        f"{name} {ours_value - paper_value:+.2f} points"
        for name, ours_value, paper_value in (
            ("clean", ours.clean, paper.clean),
            ("base", ours.base, paper.base),
        )
        # Both are rounded to two digits in print; so is their difference here.
        if round(abs(ours_value - paper_value), 2) > POINTS
    ]
    theirs, mine = paper.median, ours.published
    if (theirs is None) != (mine is None):
        found.append(f"median {_or_none(mine)}, paper {_or_none(theirs)}")
    elif theirs is not None and mine is not None and abs(mine - theirs) > max(1, SHARE * theirs):
        found.append(f"median {mine - theirs:+d}")
    return found


def _or_none(median: int | None) -> str:
    return "none" if median is None else str(median)
