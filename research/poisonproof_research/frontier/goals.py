"""What the results are to reach, and which results differ in one thing only."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.evaluation.comparison import FAMILIES, Method
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.frontier.evidence import certify_evidence

GOALS = "goals.toml"


@dataclass(frozen=True)
class Change:
    """Two results that differ in one thing.

    Attributes
    ----------
    what : str
        The thing.
    before, after : str
        Ids of the results without and with it.
    """

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Goal:
    """A median attack size to withstand, at an accuracy to keep.

    Attributes
    ----------
    dataset, title, threat : str
        As in `Method`.
    radius : int
        The median r* wanted.
    clean : float
        The accuracy without attack wanted, as a share.
    changes : tuple of Change
        What was tried, one thing at a time.
    seen : str
        What was known of results on the test rows before the methods that reach it were fixed.
    """

    dataset: str
    title: str
    threat: str
    radius: int
    clean: float
    changes: tuple[Change, ...] = ()
    seen: str = ""

    def concerns(self, method: Method) -> bool:
        """Say whether a method is on this data and under this threat."""
        return (method.dataset, method.threat) == (self.dataset, self.threat)

    def reached_by(self, method: Method) -> bool:
        """Say whether a method reaches both."""
        return self.accurate(method) and self.robust(method)

    def accurate(self, method: Method) -> bool:
        """Say whether a method is accurate enough; a share is not rounded."""
        return method.clean >= self.clean

    def robust(self, method: Method) -> bool:
        """Say whether half of the test rows are certified at the wanted size."""
        return method.median is not None and method.median >= self.radius


def read_goals(folders: Sequence[Path]) -> list[Goal]:
    """Read the goals of all folders that hold a ``goals.toml``.

    Raises
    ------
    InvalidInputError
        Naming the file, if it cannot be read as goals.
    """
    return [
        goal for folder in folders if (folder / GOALS).exists() for goal in _read(folder / GOALS)
    ]


def _read(path: Path) -> list[Goal]:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["goal"]
        return [_goal(entry) for entry in entries]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"{path} does not hold goals: {error!r}.") from error


def _goal(entry: dict[str, Any]) -> Goal:
    changes = tuple(
        Change(str(change["what"]), str(change["before"]), str(change["after"]))
        for change in entry.get("changes", [])
    )
    return Goal(
        str(entry["dataset"]),
        str(entry["title"]),
        str(entry["threat"]),
        int(entry["radius"]),
        float(entry["clean_percent"]) / 100,
        changes,
        str(entry.get("seen", "")),
    )


# What if members were better, or wrong elsewhere: certificates of votes changed on purpose.
#
# These are no certificates of anything that exists. They say which property of the members keeps a
# result below a goal: how often they are right, or that they are wrong on the same test rows.

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


# How large a radius each kind of vote can have at all, and why.

_ARGUMENTS = {
    "dpa": (
        "floor(k / 2)",
        "One row reaches one member. Even if all k agree, half of them, changed, make another "
        "label win.",
    ),
    "ss-dpa": (
        "floor(k / 2)",
        "One flipped label reaches one member, and k members give k votes. More members have "
        "fewer rows each, down to one.",
    ),
    "finite_aggregation": (
        "floor(k / 2)",
        "One row reaches d of k d members, and each that changes sides closes the gap by two.",
    ),
    "runoff": (
        "floor(k / 2)",
        "The second round is decided by k preferences between two labels.",
    ),
    "neighbors": (
        "n_c",
        "Rows vote for their own label, so at most the n_c training rows of the class do; without "
        "them the label has no vote left.",
    ),
    "clusters_local": (
        "n / 2",
        "Half of the n rows of a cluster, relabelled, are a majority of their own.",
    ),
    "clusters_assigned": (
        "(n_A + n_B) / 2",
        "Exchanging the labels A and B in all their rows costs n_A + n_B flips and exchanges the "
        "predictions of any rule that treats labels alike. Halfway, within reach from both ends, "
        "a prediction would have to be A and B.",
    ),
    "label_flips": (
        "(n_A + n_B) / 2",
        "The same exchange: no rule that treats labels alike withstands half of n_A + n_B flips.",
    ),
}

_RELABELLED = {
    "neighbors": (
        "n_c / 2",
        "Rows vote for their own label, so at most the n_c training rows of the class do; half of "
        "them, relabelled, give another label as many votes as are left.",
    ),
}
"""Where flipped labels meet another limit than inserted and deleted rows."""


def limit_table(methods: Sequence[Method]) -> str:
    """Return a Markdown table: the limit of every kind of vote under one threat, and why."""
    flips = all(method.threat == "label_flip" for method in methods)
    arguments = _ARGUMENTS | (_RELABELLED if flips else {})
    families = [name for name in FAMILIES if any(method.family == name for method in methods)]
    lines = ["| kind of vote | limit | here | argument |", "| --- | --- | --- | --- |"]
    for family in families:
        limit, argument = arguments[family]
        own = [method for method in methods if method.family == family]
        lines.append(f"| {FAMILIES[family]} | {limit} | {_here(family, own)} | {argument} |")
    return "\n".join(lines)


def _here(family: str, methods: Sequence[Method]) -> str:
    """Return the limit in numbers, as far as the results tell."""
    if family in ("dpa", "ss-dpa", "runoff", "finite_aggregation"):
        members = sorted(
            {method.certificates.n_members // method.facts.get("degree", 1) for method in methods}
        )
        return ", ".join(f"{k // 2:,} (k = {k:,})" for k in members)
    sizes = next(
        (m.facts["train_class_sizes"] for m in methods if "train_class_sizes" in m.facts), None
    )
    if sizes is None:
        return ""
    rows = np.sort(np.asarray(sizes))
    if family == "neighbors":
        share = 2 if methods[0].threat == "label_flip" else 1
        return f"{rows[0] // share:,} to {rows[-1] // share:,}"
    if family == "clusters_local":
        return f"about {rows[0] // 2:,} to {rows[-1] // 2:,}, one cluster per class"
    if family in ("clusters_assigned", "label_flips"):
        return f"{(rows[0] + rows[1]) // 2:,} to {(rows[0] + rows[-1]) // 2:,}"
    return ""
