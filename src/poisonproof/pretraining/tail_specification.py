"""The law of members that are the rest of a network on a frozen first part."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["NETWORK", "TailSpec"]

NETWORK = "nin-tail"
FIRST_WEIGHTS = ("uniform", "normal")


@dataclass(frozen=True)
class TailSpec:
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule : TorchSpec
        Input, epochs, optimiser, augmentation, precision, width of a stack.
    features_sha256 : str
        Digest of the frozen part.
    lane_rows : int
        Rows per member and launch; no batch may have more.
    first_weights : {"uniform", "normal"}
        Within +-1/sqrt(fan-in), or normal with variance 2/fan-out and no bias.
    """

    schedule: TorchSpec
    features_sha256: str
    lane_rows: int
    first_weights: str = "uniform"

    def __post_init__(self) -> None:
        if not 1 <= self.lane_rows <= self.schedule.batch_size:
            raise InvalidInputError(
                f"lane_rows must be between 1 and batch_size={self.schedule.batch_size}, got"
                f" {self.lane_rows}."
            )
        if self.first_weights not in FIRST_WEIGHTS:
            raise InvalidInputError(
                f"first_weights must be one of {', '.join(FIRST_WEIGHTS)}, got"
                f" {self.first_weights!r}."
            )

    @property
    def execution(self) -> str:
        """How members are trained: many per launch."""
        return "stacked"

    @property
    def stack_width(self) -> int:
        """Members per launch."""
        return self.schedule.stack_width

    @property
    def device(self) -> str:
        """Where members are trained."""
        return self.schedule.device

    @property
    def threads(self) -> int:
        """Threads inside one CPU operation."""
        return self.schedule.threads

    @property
    def n_classes(self) -> int:
        """Size of the declared label set."""
        return self.schedule.n_classes

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values, without a choice that older results lack."""
        values = {
            **self.schedule.to_json(),
            "network": NETWORK,
            "execution": self.execution,
            "features_sha256": self.features_sha256,
            "lane_rows": self.lane_rows,
        }
        if self.first_weights != "uniform":
            values["first_weights"] = self.first_weights
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TailSpec:
        """Read what `to_json` wrote."""
        rest = dict(values)
        features, rows = rest.pop("features_sha256"), rest.pop("lane_rows")
        first = rest.pop("first_weights", "uniform")
        rest |= {"network": "custom", "execution": "vmap"}
        return cls(TorchSpec.from_json(rest), features, rows, first)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
