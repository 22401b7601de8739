"""What attacks did to a protected and to an unprotected model, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from poisonproof.attacks.search import Trace
from poisonproof.certificates import Threat
from poisonproof.exceptions import InvalidInputError

__all__ = ["AttackStudy", "AttackedRow", "KindOutcome"]


@dataclass(frozen=True)
class AttackedRow:
    """What one kind of attack did to one prediction.

    Attributes
    ----------
    row : int
        Position in the test set.
    radius : int
        The certificate, in units of the attack.
    on_votes : int or None
        Members that must be turned in the worst case; one more than the radius where a unit
        reaches one member.
    protected, unprotected : Trace
        Sizes tried on the ensemble, and on one model of the same kind trained on all rows.
    """

    row: int
    radius: int
    on_votes: int | None
    protected: Trace
    unprotected: Trace


@dataclass(frozen=True)
class KindOutcome:
    """One kind of attack on all targets."""

    name: str
    title: str
    threat: Threat
    rows: tuple[AttackedRow, ...]

    @property
    def trials_within(self) -> tuple[int, int]:
        """Attacks of at most the certified size, and how many of them changed the prediction."""
        pairs = [row.protected.within(row.radius) for row in self.rows]
        return sum(tried for tried, _ in pairs), sum(changed for _, changed in pairs)

    @property
    def median_radius(self) -> int:
        """Median certificate of the targets, the upper one of two."""
        return sorted(row.radius for row in self.rows)[len(self.rows) // 2]

    def median_first(self, which: str) -> int | None:
        """Return the median first change of ``"protected"`` or ``"unprotected"``.

        None if that many targets never changed.
        """
        firsts = [getattr(row, which).first for row in self.rows]
        found = sorted(first for first in firsts if first is not None)
        middle = len(firsts) // 2
        return found[middle] if middle < len(found) else None


@dataclass(frozen=True)
class AttackStudy:
    """The outcome of all kinds of attack on one model.

    Attributes
    ----------
    n_members, n_rows : int
        Members of the protected model, and clean training rows.
    limit : int
        Largest attack tried.
    kinds : tuple of KindOutcome
        One per kind of attack.
    """

    n_members: int
    n_rows: int
    limit: int
    kinds: tuple[KindOutcome, ...]

    @property
    def trials_within(self) -> tuple[int, int]:
        """Attacks of at most the certified size over all kinds, and how many changed something."""
        pairs = [kind.trials_within for kind in self.kinds]
        return sum(tried for tried, _ in pairs), sum(changed for _, changed in pairs)

    def sentences(self) -> tuple[str, ...]:
        """Return the outcome in plain words."""
        tried, changed = self.trials_within
        lines = [
            f"{tried:,} attacks within the certified size, each with real retraining: "
            f"{changed:,} changed the prediction."
        ]
        for kind in self.kinds:
            first, bare = kind.median_first("protected"), kind.median_first("unprotected")
            lines.append(
                f"{kind.title}: half of the predictions are proved up to {kind.median_radius:,}, "
                f"and fell at {_or_beyond(first, self.limit)}; without protection at "
                f"{_or_beyond(bare, self.limit)}."
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the study as JSON values."""
        return {
            "n_members": self.n_members,
            "n_rows": self.n_rows,
            "limit": self.limit,
            "kinds": [{**asdict(kind), "threat": kind.threat.to_dict()} for kind in self.kinds],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a study from `to_dict`."""
        try:
            return cls(
                n_members=int(values["n_members"]),
                n_rows=int(values["n_rows"]),
                limit=int(values["limit"]),
                kinds=tuple(_kind(entry) for entry in values["kinds"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"This is not the result of poisonproof attack: {type(error).__name__}: {error}."
            ) from error


def _kind(entry: Mapping[str, Any]) -> KindOutcome:
    rows = tuple(
        AttackedRow(
            int(row["row"]),
            int(row["radius"]),
            None if row["on_votes"] is None else int(row["on_votes"]),
            *(
                Trace(tuple(map(int, row[which]["tried"])), tuple(map(bool, row[which]["changed"])))
                for which in ("protected", "unprotected")
            ),
        )
        for row in entry["rows"]
    )
    threat = Threat.from_dict(entry["threat"])
    return KindOutcome(str(entry["name"]), str(entry["title"]), threat, rows)


def _or_beyond(size: int | None, limit: int) -> str:
    return f"no size up to {limit:,}" if size is None else f"{size:,}"
