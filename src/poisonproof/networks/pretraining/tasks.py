"""What features are learned from: rotations of images (RotNet), or pairs of views (SimCLR)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.networks.augmentation import Purpose, augment
from poisonproof.networks.graphs import PretrainSGD
from poisonproof.networks.modules import build
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.views import PURPOSES, Pixels, make_views, run_layers
from poisonproof.networks.specification import Augmentation, NetworkSpec


class Task(ABC):
    """A network and a loss that needs images and random words, and no labels."""

    module: nn.Module
    purposes: tuple[int, ...]
    rule: type[PretrainSGD] = PretrainSGD

    def __init__(self, spec: PretrainSpec) -> None:
        self.spec = spec
        self.pixels = Pixels(spec.mean, spec.std)

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return what `loss` takes for these rows of all images: the images themselves."""
        return images[rows]

    @abstractmethod
    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, and a share that tells how well the task is done."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Return the features of normalised images, without batch statistics."""


def make_task(spec: PretrainSpec) -> Task:
    """Return the task of a specification; its weights mean nothing yet."""
    return RotNet(spec) if spec.method == "rotnet" else SimCLR(spec)


class RotNet(Task):
    """Network in Network that learns which way up images are (Gidaris et al., 2018)."""

    purposes: tuple[int, ...] = (Purpose.CROP,)

    def __init__(self, spec: PretrainSpec) -> None:
        super().__init__(spec)
        self.dtype = getattr(torch, spec.dtype)
        built = build(NetworkSpec("nin4", spec.input_shape, 4, execution="single"))
        assert isinstance(built, nn.Sequential)
        self.module = built
        self.layers = list(built)

    def views(self, images: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return cropped images in all four rotations, normalised, shape (4 n, C, H, W)."""
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
        return run_layers(self.layers[:20], x, self.dtype, train=False)


class SimCLR(Task):
    """ResNet-18 that learns which two views show the same image (Chen et al., 2020).

    The outputs of a head are compared; the head is thrown away.
    """

    purposes: tuple[int, ...] = (*PURPOSES[0], *PURPOSES[1])

    def __init__(self, spec: PretrainSpec) -> None:
        super().__init__(spec)
        resnet = build(
            NetworkSpec("resnet18", spec.input_shape, 2, execution="single", width=spec.width)
        )
        assert isinstance(resnet, nn.Sequential)
        deep = 8 * spec.width
        self.encoder = nn.Sequential(*list(resnet)[:-1])
        self.head = nn.Sequential(nn.Linear(deep, deep), nn.ReLU(), nn.Linear(deep, spec.head))
        self.module = nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the contrastive loss of two views of every image, and the share paired."""
        views = torch.cat([make_views(images, self.spec, draw, number) for number in (0, 1)])
        return self.network_loss(self.pixels.normalised(255.0 * views))

    def network_loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of normalised views, the first of all images first."""
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
    """Return the cross-entropy of paired vectors, and the share whose partner is nearest.

    Rows i and n + i of `z` (2 n, d) belong together; cosines are divided by the temperature, and
    the loss is multiplied by `scale`.

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
