"""Laws as JSON: what can change a bit of something trained, and the digest of all that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from poisonproof.exceptions import InvalidInputError

__all__ = ["Law"]


@dataclass(frozen=True)
class Law:
    """Everything that can change a bit of something trained, as one frozen value."""

    kind: ClassVar[str]
    """What errors call it."""

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        if unknown := sorted(set(values) - {item.name for item in fields(cls)}):
            raise InvalidInputError(
                f"A {cls.kind} specification of this version has no field {', '.join(unknown)}."
                " It was written by another version of poisonproof."
            )
        return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
