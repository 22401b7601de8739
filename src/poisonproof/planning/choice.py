"""From learning curves to a table over k, and a proposal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poisonproof.exceptions import InvalidInputError
from poisonproof.planning.curves import CurvePoint, LearningCurves

__all__ = ["Plan", "PlanRow", "make_plan"]


@dataclass(frozen=True)
class PlanRow:
    """What to expect of one k and one kind of member.

    Attributes
    ----------
    model : str
    n_partitions : int
    rows_per_member : int
    accuracy : float
        Expected accuracy without an attack.
    median_radius : int
        Expected median radius: half of the rows stay correct up to it.
    certified : float or None
        Expected share that stays correct under the wanted radius.
    seconds : float
        Expected time to train all members and ask them, one process on the machine that measured.
    measured_members : int
        How many members the expectation rests on.
    """

    model: str
    n_partitions: int
    rows_per_member: int
    accuracy: float
    median_radius: int
    certified: float | None
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
    accuracy_loss: float = 0.05,
) -> Plan:
    """Expect accuracy and radius over k, and propose one.

    A member of an ensemble of k sees ``expected_rows / k`` rows. The votes of members of that size
    on trusted rows give the margin of every test row, and the radius is expected to be ``k * margin
    / 2``.

    Parameters
    ----------
    curves : LearningCurves
    expected_rows : int
        Rows that will be trained on, a number known beforehand.
    wanted_radius : int, optional
        Propose the most accurate ensemble whose median radius reaches it. By default the largest
        median radius is proposed among those whose accuracy is at most `accuracy_loss` below the
        best.
    accuracy_loss : float

    Examples
    --------
    >>> point = CurvePoint("tree", 20, 10, np.array([0.6, 0.8]), 1.0, 0.8, 0.1)
    >>> plan = make_plan(LearningCurves((point,), 200, 2, "row"), expected_rows=2000)
    >>> plan.proposed.n_partitions, plan.proposed.median_radius
    (100, 40)
    """
    if expected_rows < 2:
        raise InvalidInputError(f"expected_rows must be at least 2. Got {expected_rows}.")
    rows = tuple(
        _row(point, expected_rows, wanted_radius)
        for point in curves.points
        if expected_rows >= 2 * point.rows_per_member
    )
    if not rows:
        raise InvalidInputError(
            f"{expected_rows:,} rows are fewer than two members of the smallest measured size need."
        )
    if wanted_radius is None:
        best = max(row.accuracy for row in rows)
        allowed = [row for row in rows if row.accuracy >= best - accuracy_loss]
        chosen = max(allowed, key=lambda row: (row.median_radius, row.accuracy))
        reason = (
            f"the largest median radius within {100 * accuracy_loss:g} points of the best accuracy"
        )
    else:
        reached = [row for row in rows if row.median_radius >= wanted_radius]
        if not reached:
            most = max(rows, key=lambda row: row.median_radius)
            raise InvalidInputError(
                f"No number of members is expected to reach a median radius of {wanted_radius:,}; "
                f"the largest is {most.median_radius:,} (k = {most.n_partitions:,}, {most.model}). "
                "Collect more rows, want less, or try other members."
            )
        chosen = max(reached, key=lambda row: (row.accuracy, -row.n_partitions))
        reason = f"the best accuracy with a median radius of at least {wanted_radius:,}"
    return Plan(tuple(sorted(rows, key=_order)), chosen, reason)


def _row(point: CurvePoint, expected_rows: int, wanted_radius: int | None) -> PlanRow:
    k = max(2, expected_rows // point.rows_per_member)
    radii = np.floor(k * point.margins / 2)
    # The largest radius that at least half of all rows reach: the upper median.
    middle = np.sort(radii)[::-1][(len(radii) + 1) // 2 - 1]
    return PlanRow(
        model=point.model,
        n_partitions=k,
        rows_per_member=point.rows_per_member,
        accuracy=point.accuracy,
        median_radius=max(0, int(middle)),
        certified=None if wanted_radius is None else float((radii >= wanted_radius).mean()),
        seconds=k * point.seconds,
        measured_members=point.n_members,
    )


def _order(row: PlanRow) -> tuple[str, int]:
    return row.model, row.n_partitions
