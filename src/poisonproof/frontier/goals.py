"""What the results are to reach, and which results differ in one thing only."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.frontier.method import Method

__all__ = ["Change", "Goal", "read_goals"]

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
