"""The law of linear members that are trained on views of their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec

__all__ = ["HeadSpec"]

_OWN = ("views", "view_seed", "smallest_view", "flip", "vector_length")


@dataclass(frozen=True)
class HeadSpec(OnFrozenSpec):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule, features_sha256
        As in `OnFrozenSpec`; members take images.
    views, view_seed : int
        Views of every image, and the seed of their draws.
    smallest_view : float
        Least share of the image that a view shows.
    flip : bool
        Whether views may be mirrored.
    vector_length : int
        Length of the vectors that the frozen part makes of images.
    """

    network: ClassVar[str] = "linear-on-views"

    views: int
    view_seed: int
    smallest_view: float
    flip: bool
    vector_length: int

    def __post_init__(self) -> None:
        if self.views < 1:
            raise InvalidInputError(f"views must be at least 1, got {self.views}.")

    @property
    def linear(self) -> TorchSpec:
        """The law of the linear layers alone, which take vectors."""
        return replace(self.schedule, input_shape=(self.vector_length,))

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        return {**super().to_json(), **{name: getattr(self, name) for name in _OWN}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        rest = {**values, "network": "linear"}
        features = rest.pop("features_sha256")
        own = {name: rest.pop(name) for name in _OWN}
        return cls(TorchSpec.from_json(rest), features, **own)
