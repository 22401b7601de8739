"""RotNet: learn from images alone by telling which way up they are (Gidaris et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from poisonproof.learners.torch.augmentation import augment
from poisonproof.learners.torch.networks import build
from poisonproof.learners.torch.specification import Augmentation, TorchSpec
from poisonproof.learners.torch.streams import Purpose
from poisonproof.pretraining.flat import FlatWeights
from poisonproof.pretraining.layers import Pixels, run_layers
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["RotNet"]

_SECOND_BLOCK = 20
"""Layers of the first two blocks, their pools included."""


class RotNet:
    """Network in Network with four blocks that names the rotation of an image.

    Parameters
    ----------
    spec : PretrainSpec
        The law.
    """

    purposes: tuple[int, ...] = (Purpose.CROP,)
    metric = "rotations told"
    flatten = FlatWeights

    def __init__(self, spec: PretrainSpec) -> None:
        self.spec = spec
        self.dtype = getattr(torch, spec.dtype)
        built = build(TorchSpec("nin4", spec.input_shape, 4, execution="single"))
        assert isinstance(built, nn.Sequential)
        self.module: nn.Module = built
        self.layers = list(built)
        self.pixels = Pixels(spec.mean, spec.std)

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return the images of these rows."""
        return images[rows]

    def views(self, images: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return cropped images in all four rotations, normalised, shape (4 n, C, H, W).

        Parameters
        ----------
        images : uint8 tensor of shape (n, C, H, W)
            A batch.
        draw : dict of int64 tensors of shape (n, 4)
            Words for the crop.
        """
        x = images.float()[None]
        if self.spec.crop:
            rule = Augmentation(crop=self.spec.crop)
            x = augment(x, rule, lambda purpose: draw[purpose][None])
        x = self.pixels.normalised(x[0])
        return torch.cat([torch.rot90(x, turns, (2, 3)) for turns in range(4)])

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return cross-entropy over the four rotations, and the share told correctly."""
        x = self.views(images, draw)
        x = run_layers(self.layers[:-3], x, self.dtype, train=True)
        linear = self.layers[-1]
        assert isinstance(linear, nn.Linear)
        logits = linear(x.float().mean(dim=(2, 3))).view(4, len(images), 4)
        truth = torch.eye(4, device=logits.device)[:, None]
        chosen = (torch.log_softmax(logits, dim=-1) * truth).sum(dim=-1)
        right = (logits.argmax(dim=-1) == torch.arange(4, device=logits.device)[:, None]).float()
        return -chosen.mean(), right.mean()

    def features(self, x: Tensor) -> Tensor:
        """Return the output of the second block for normalised images, channels first."""
        return run_layers(self.layers[:_SECOND_BLOCK], x, self.dtype, train=False)
