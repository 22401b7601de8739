"""SimCLR: learn from images alone which two views show the same one (Chen et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.learners.torch.networks import build
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.pretraining.flat import FlatWeights
from poisonproof.pretraining.layers import Pixels
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.views import PURPOSES, make_views

__all__ = ["SimCLR", "channels_last", "contrast"]


class SimCLR:
    """ResNet-18 for small images, with a head whose outputs are compared and then thrown away.

    Parameters
    ----------
    spec : PretrainSpec
        The law.
    """

    purposes: tuple[int, ...] = (*PURPOSES[0], *PURPOSES[1])
    metric = "views paired"
    flatten = FlatWeights

    def __init__(self, spec: PretrainSpec) -> None:
        self.spec = spec
        resnet = build(
            TorchSpec("resnet18", spec.input_shape, 2, execution="single", width=spec.width)
        )
        assert isinstance(resnet, nn.Sequential)
        deep = 8 * spec.width
        self.encoder = nn.Sequential(*list(resnet)[:-1])
        self.head = nn.Sequential(nn.Linear(deep, deep), nn.ReLU(), nn.Linear(deep, spec.head))
        self.module: nn.Module = nn.ModuleDict({"encoder": self.encoder, "head": self.head})
        self.pixels = Pixels(spec.mean, spec.std)

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return the images of these rows."""
        return images[rows]

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the contrastive loss of two views of every image, and the share paired."""
        views = torch.cat([make_views(images, self.spec, draw, number) for number in (0, 1)])
        x = self.pixels.normalised(255.0 * views)
        return self.network_loss(x)

    def network_loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of views that are there already, the first of all images first."""
        self.module.train()
        with self._products():
            z = self.head(self.encoder(channels_last(x)))
        return contrast(z.float(), self.spec.temperature, self.spec.loss_scale)

    def features(self, x: Tensor) -> Tensor:
        """Return the encoder's output for normalised images, shape (n, 8 * width)."""
        self.module.eval()
        with self._products():
            out: Tensor = self.encoder(channels_last(x))
        return out

    def _products(self) -> torch.autocast:
        half = self.spec.dtype == "bfloat16"
        # No cache of converted weights: a recorded step would not convert them again.
        return torch.autocast(self.spec.device, torch.bfloat16, enabled=half, cache_enabled=False)


def channels_last(x: Tensor) -> Tensor:
    """Return the same images, the channels of a pixel side by side in memory."""
    return x.contiguous(memory_format=torch.channels_last)


def contrast(z: Tensor, temperature: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return the normalised, temperature-scaled cross-entropy of paired vectors.

    Parameters
    ----------
    z : float32 tensor of shape (2 n, d)
        Row i and row n + i belong together.
    temperature, scale : float
        What cosines are divided by, and a factor on the result.

    Returns
    -------
    loss, share : tensors of shape ()
        The loss, and the share of rows whose partner is the nearest other row.

    Examples
    --------
    >>> z = torch.eye(4).repeat(2, 1)
    >>> loss, share = contrast(z, 0.5, 1.0)
    >>> round(loss.item(), 4), share.item()
    (0.5944, 1.0)
    """
    n = len(z) // 2
    z = functional.normalize(z, dim=1)
    cosines = z @ z.T / temperature
    place = torch.arange(2 * n, device=z.device)
    itself = place[:, None] == place
    others = torch.where(itself, -torch.inf, cosines)
    partner = (place + n) % (2 * n)
    paired = torch.where(place == partner[:, None], cosines, 0.0).sum(dim=1)
    share = (others.argmax(dim=1) == partner).float().mean()
    return scale * (torch.logsumexp(others, dim=1) - paired).mean(), share
