"""What a method of learning without labels must offer to the training loop."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from poisonproof.pretraining.flat import FlatWeights
from poisonproof.pretraining.layers import Pixels
from poisonproof.pretraining.rotnet import RotNet
from poisonproof.pretraining.simclr import SimCLR
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["Task", "make_task"]


class Task(Protocol):
    """A network and a loss that needs images and random words, and no labels."""

    spec: PretrainSpec
    module: nn.Module
    pixels: Pixels
    purposes: tuple[int, ...]
    metric: str
    flatten: type[FlatWeights]

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return what `loss` takes for these rows of all images."""

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, and a share that tells how well the task is done."""

    def features(self, x: Tensor) -> Tensor:
        """Return the features of normalised images, without batch statistics."""


def make_task(spec: PretrainSpec) -> Task:
    """Return the task of a specification; its weights mean nothing yet."""
    return RotNet(spec) if spec.method == "rotnet" else SimCLR(spec)
