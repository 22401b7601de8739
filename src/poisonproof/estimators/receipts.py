"""What an update did, for whoever asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Receipt", "Retrained"]


@dataclass(frozen=True)
class Retrained:
    """One member that was trained again: digests of its rows and of itself, before and after."""

    member: int
    rows_before: str
    rows_after: str
    member_before: str
    member_after: str


@dataclass(frozen=True)
class Receipt:
    """The account of one update.

    Attributes
    ----------
    added, removed : tuple of str
        The rows that came and went: the SHA-256 digest of the sample, as `sample_digests` makes
        it, a colon and the label. Whoever has a row can find it here; whoever can guess it can
        check the guess.
    retrained : tuple of Retrained
        Every member whose partition changed; no other member did.
    n_members : int
        The number of all members, k.
    fingerprint_before, fingerprint_after : str or None
        Fingerprints of the stored model; None for a model that is not in a store.

    Examples
    --------
    >>> Receipt((), ("ab12:7",), (), 50).sentences()[0]
    '0 rows added, 1 row removed; 0 of 50 members trained again.'
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    retrained: tuple[Retrained, ...]
    n_members: int
    fingerprint_before: str | None = None
    fingerprint_after: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as JSON values."""
        return asdict(self) | {
            "added": list(self.added),
            "removed": list(self.removed),
            "retrained": [asdict(entry) for entry in self.retrained],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Receipt:
        """Read what `to_json` returned."""
        return cls(
            tuple(value["added"]),
            tuple(value["removed"]),
            tuple(Retrained(**entry) for entry in value["retrained"]),
            value["n_members"],
            value["fingerprint_before"],
            value["fingerprint_after"],
        )

    def sentences(self) -> list[str]:
        """Return the receipt in words."""
        words = [
            f"{_rows(self.added)} added, {_rows(self.removed)} removed; "
            f"{len(self.retrained):,} of {self.n_members:,} members trained again."
        ]
        if self.fingerprint_after is not None:
            words.append(f"Fingerprint before: {self.fingerprint_before}")
            words.append(f"Fingerprint after:  {self.fingerprint_after}")
        return words


def _rows(rows: Sequence[str]) -> str:
    return f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")
