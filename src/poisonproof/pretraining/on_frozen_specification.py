"""What the laws of all members on a frozen first part have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from poisonproof.learners.torch.law import Law
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["OnFrozenSpec"]


@dataclass(frozen=True)
class OnFrozenSpec(Law, ABC):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule : TorchSpec
        Input, epochs, optimiser, augmentation, precision, width of a stack.
    features_sha256 : str
        Digest of the frozen part.
    """

    network: ClassVar[str]
    """What stands on the frozen part."""

    schedule: TorchSpec
    features_sha256: str

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
        """Return the specification as JSON values."""
        return {
            **self.schedule.to_json(),
            "network": self.network,
            "execution": self.execution,
            "features_sha256": self.features_sha256,
        }

    @classmethod
    @abstractmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
