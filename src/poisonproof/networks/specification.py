"""Everything that decides the bits of a network as a member: `NetworkSpec`, one frozen value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Self

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import Spec

_FUSED: dict[str, Sequence[object]] = {
    "network": ("nin", "nin4"),
    "device": ("cuda",),
    "dtype": ("bfloat16",),
    "batch_size": (16, 32, 64, 128),
    "n_classes": range(2, 65),
}
"""Values that the kernels of NiN support."""
_REAL = ("learning_rate", "momentum", "weight_decay", "mixup", "warmup_epochs")
_FIXED: dict[str, Any] = {
    "optimizer": "sgd",
    "betas": [0.9, 0.999],
    "epsilon": 1e-8,
    "label_smoothing": 0.0,
    "mean": [],
    "std": [],
    "on_nan": "abstain",
}
"""Constants of every training, which are part of the digests of committed results."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes of a training image, drawn anew per (seed, partition, epoch, row).

    Attributes
    ----------
    crop : int
        Pixels of black border before a random crop to the old size; 0 means no crop.
    flip : bool
        Mirror left-right with probability one half.
    rotate, scale, shift : float
        Largest rotation in degrees, relative change of size, and shift as a share of the side.
    brightness, contrast, saturation : float
        Largest relative change; saturation needs three channels.
    cutout : int
        Side of a square set to zero; 0 means none.

    Examples
    --------
    >>> Augmentation(crop=4, flip=True).is_identity
    False
    """

    crop: int = 0
    flip: bool = False
    rotate: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    cutout: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            if getattr(self, item.name) < 0:
                raise InvalidInputError(
                    f"Augmentation({item.name}=...) must be >= 0, got {getattr(self, item.name)!r}."
                )

    @property
    def is_identity(self) -> bool:
        """Whether images pass unchanged."""
        return self == Augmentation()


@dataclass(frozen=True)
class NetworkSpec(Spec):
    """The training of a network: with a partition and a seed it fixes every bit of a member.

    All fields but these are described with the parameters of `TorchLearner`.

    Attributes
    ----------
    network : str
        ``"custom"`` is a user's module, named by `factory`.
    input_shape : tuple of int
        ``(d,)`` for vectors, ``(C, H, W)`` for images.
    n_classes : int
        Width of the output: declared, never found in the data.
    normalize : str
        ``"partition"`` has become ``"channel"`` for images and ``"feature"`` for vectors.

    Examples
    --------
    >>> spec = NetworkSpec(network="mlp", input_shape=(64,), n_classes=10, hidden=(64,))
    >>> NetworkSpec.from_json(spec.to_json()) == spec
    True
    >>> len(spec.digest())
    64
    """

    kind: ClassVar[str] = "deep"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "network": ("linear", "mlp", "nin", "nin4", "resnet10", "resnet18", "custom"),
        "execution": ("stacked", "single", "graph", "fused"),
        "schedule": ("step", "cosine", "constant"),
        "normalize": ("channel", "feature", "none"),
        "seed_rule": ("partition", "shared"),
        "dtype": ("float32", "bfloat16"),
        "device": ("cpu", "cuda"),
    }
    counts: ClassVar[tuple[str, ...]] = (
        "epochs", "batch_size", "stack_width", "tile_rows", "threads", "vote_rows", "width"
    )  # fmt: skip

    network: str
    input_shape: tuple[int, ...]
    n_classes: int
    execution: str = "stacked"
    factory: str | None = None
    hidden: tuple[int, ...] = (64,)
    width: int = 64
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: str = "step"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.2
    warmup_epochs: int = 0
    mixup: float = 0.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    normalize: str = "none"
    input_scale: float = 1.0
    seed_rule: str = "partition"
    stack_width: int = 32
    tile_rows: int = 64
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    vote_rows: int = 128
    mirrored_votes: bool = False
    version: int = 1

    def problems(self) -> list[str]:
        """Return what is wrong with the values, one sentence each."""
        wrong = super().problems()
        names = [name for name in _REAL if not isinstance(getattr(self, name), Real)]
        if names:
            wrong += [f"{name} must be a number, got {getattr(self, name)!r}." for name in names]
            return wrong
        if self.n_classes < 2:
            wrong.append(f"n_classes must be at least 2, got {self.n_classes}.")
        if len(self.input_shape) not in (1, 3) or min(self.input_shape, default=0) < 1:
            wrong.append(f"input_shape must be (d,) or (C, H, W), got {self.input_shape!r}.")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            wrong.append(f"learning_rate must be positive, got {self.learning_rate!r}.")
        if self.mixup < 0 or self.weight_decay < 0 or self.warmup_epochs < 0:
            wrong.append("mixup, weight_decay and warmup_epochs must not be negative.")
        return wrong + self._wrong_combinations()

    def _wrong_combinations(self) -> list[str]:
        wrong = []
        for_images = {
            f"network={self.network!r}": self.network in ("nin", "nin4", "resnet10", "resnet18"),
            "augmentation": not self.augmentation.is_identity,
            "mirrored_votes": self.mirrored_votes,
        }
        wrong += [
            f"{name} needs images; pass image_shape=(C, H, W) (got {self.input_shape})."
            for name, given in for_images.items()
            if given and len(self.input_shape) != 3
        ]
        if self.augmentation.saturation and self.input_shape[0] != 3:
            wrong.append("augmentation with saturation needs three channels.")
        if self.execution == "stacked" and self.network not in ("linear", "mlp"):
            wrong.append(
                f"network={self.network!r} cannot be stacked; use execution='single' or 'graph',"
                " or 'fused' for NiN on CUDA."
            )
        if self.execution == "fused":
            wrong += [
                f"execution='fused' is for {name} in {allowed!r}, got"
                f" {getattr(self, name)!r}; use execution='graph' or 'single'."
                for name, allowed in _FUSED.items()
                if getattr(self, name) not in allowed
            ]
        if self.dtype == "bfloat16" and self.device == "cpu":
            wrong.append("dtype='bfloat16' needs device='cuda'.")
        if self.threads > 1 and self.shares_launches and self.device == "cpu":
            wrong.append(
                f"execution={self.execution!r} computes on one thread, got threads={self.threads}:"
                " threads share a launch in the middle of lanes, so that a member would depend on"
                " where its lane lies. Use n_jobs for more cores, or execution='single'."
            )
        if (self.network == "custom") != (self.factory is not None):
            wrong.append("factory must be given for network='custom', and only for it.")
        return wrong

    @property
    def is_alone(self) -> bool:
        """Whether a launch holds one member, so that shapes may follow its own partition."""
        return self.execution in ("single", "graph")

    @property
    def shares_launches(self) -> bool:
        """Whether a launch holds several members."""
        return self.execution in ("stacked", "fused") and self.stack_width > 1

    def rate(self, epoch: int, step: int, steps: int) -> float:
        """Return the learning rate of `step` (of `steps`) in `epoch`, both counted from 0."""
        if epoch < self.warmup_epochs:
            return self.learning_rate * (epoch * steps + step + 1) / (self.warmup_epochs * steps)
        if self.schedule == "step":
            return self.learning_rate * self.gamma ** sum(epoch >= m for m in self.milestones)
        if self.schedule == "cosine":
            done = (epoch - self.warmup_epochs) / max(1, self.epochs - self.warmup_epochs)
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        values = {**super().to_json(), **_FIXED}
        if not self.mirrored_votes:  # a later field: without it, digests are what they were
            del values["mirrored_votes"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        augmentation = Augmentation(**values.get("augmentation", {}))
        own = {name: v for name, v in values.items() if name not in _FIXED or v != _FIXED[name]}
        return super().from_json({**own, "augmentation": augmentation})
