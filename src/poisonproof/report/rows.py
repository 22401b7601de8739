"""The test rows worth a look: those that an attacker turns first, and those that hold longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poisonproof.certificates.classes import class_indices
from poisonproof.report.evidence import Evidence
from poisonproof.report.samples import Sample, visible

__all__ = ["ROWS_VOTE", "ShownRow", "VoteBar", "extreme_rows", "shown_row"]

ROWS_VOTE = ("row_votes", "cluster_assignment")
"""Methods in which training rows vote themselves; most of them say nothing about a test row."""

_MOST_BARS = 3


@dataclass(frozen=True)
class VoteBar:
    """The votes for one label.

    Attributes
    ----------
    label : str
        The label, or None for members that abstained.
    count : int
        Votes.
    role : {"winner", "rival", "other"}
        The predicted label, the one closest to overtaking it, or neither.
    """

    label: str | None
    count: int
    role: str


@dataclass(frozen=True)
class ShownRow:
    """A test row with its votes.

    Attributes
    ----------
    number : int
        Position among the test rows, from 0.
    place : str
        Where the row stands in its file, as "Line 12".
    predicted, truth : str
        Labels; `truth` is None where it is not known.
    radius : int
        What the prediction withstands.
    bars : tuple of VoteBar
        Winner, runner-up and the next label, then abstentions.
    sample : Sample or None
        The row itself.
    n_voters : int
        How many votes there could be: the length of a full bar.
    movable : int
        Votes that one unit of attack moves from winner to runner-up; 0 where the aggregation is
        not a plain vote and bars cannot show it.
    """

    number: int
    place: str
    predicted: str
    truth: str | None
    radius: int
    bars: tuple[VoteBar, ...]
    sample: Sample | None
    n_voters: int
    movable: int


def extreme_rows(evidence: Evidence, count: int) -> tuple[list[ShownRow], list[ShownRow]]:
    """Return the rows with the smallest and with the largest radius, at most `count` each."""
    radius = evidence.certificates.radius
    by_radius = np.argsort(radius, kind="stable")
    least = by_radius[:count]
    most = np.argsort(-radius, kind="stable")[: min(count, len(radius) - len(least))]
    return [shown_row(evidence, int(i)) for i in least], [shown_row(evidence, int(i)) for i in most]


def shown_row(evidence: Evidence, row: int) -> ShownRow:
    """Return one row with its votes."""
    certificates = evidence.certificates
    classes, n_classes = certificates.classes, certificates.n_classes
    winner, rival = (
        int(class_indices(values[row : row + 1], classes, n_classes)[0])
        for values in (certificates.labels, certificates.runner_up)
    )
    counts = certificates.counts[row]
    names = evidence.tally.labels
    others = [int(i) for i in np.argsort(-counts, kind="stable") if i not in (winner, rival)]
    bars = [VoteBar(names[winner], int(counts[winner]), "winner")]
    if rival != winner:
        bars.append(VoteBar(names[rival], int(counts[rival]), "rival"))
    bars += [
        VoteBar(names[i], int(counts[i]), "other")
        for i in others[: _MOST_BARS - len(bars)]
        if counts[i]
    ]
    given = int(counts.sum())
    n_voters = given if certificates.method in ROWS_VOTE else certificates.n_members
    abstained = n_voters - given
    if abstained:
        bars.append(VoteBar(None, abstained, "other"))
    return ShownRow(
        number=row,
        place=_place(evidence, row),
        predicted=names[winner],
        truth=None if evidence.y_true is None else _text(evidence.y_true[row]),
        radius=int(certificates.radius[row]),
        bars=tuple(bars),
        sample=None if evidence.samples is None else evidence.samples.show(row),
        n_voters=max(n_voters, 1),
        movable=certificates.threat.touches if certificates.method == "plurality" else 0,
    )


def _place(evidence: Evidence, row: int) -> str:
    unit = evidence.place_unit.capitalize()
    if evidence.places is None:
        return f"{unit} {row:,}"
    place = evidence.places[row]
    return f"{unit} {visible(str(place), 80)}"


def _text(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)
