"""The law of members that are the rest of a network on a frozen first part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec

__all__ = ["TailSpec"]

FIRST_WEIGHTS = ("uniform", "normal")


@dataclass(frozen=True)
class TailSpec(OnFrozenSpec):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule, features_sha256
        As in `OnFrozenSpec`.
    lane_rows : int
        Rows per member and launch; no batch may have more.
    first_weights : {"uniform", "normal"}
        Within +-1/sqrt(fan-in), or normal with variance 2/fan-out and no bias.
    """

    network: ClassVar[str] = "nin-tail"

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

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values, without a choice that older results lack."""
        values = {**super().to_json(), "lane_rows": self.lane_rows}
        if self.first_weights != "uniform":
            values["first_weights"] = self.first_weights
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        rest = dict(values)
        features, rows = rest.pop("features_sha256"), rest.pop("lane_rows")
        first = rest.pop("first_weights", "uniform")
        rest |= {"network": "custom", "execution": "vmap"}
        return cls(TorchSpec.from_json(rest), features, rows, first)
