"""The weights of one module in one flat array, so that an update is a handful of operations."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.networks.augmentation import Purpose, augment
from poisonproof.networks.modules import build
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.views import PURPOSES, Pixels, make_views, run_layers
from poisonproof.networks.specification import Augmentation, NetworkSpec

_FADING = 0.999
"""Share of the old mean square in Adam's new one."""
_SMALLEST = 1e-8
"""Added to Adam's root mean square."""


class FlatWeights:
    """Parameters, gradients and momentum of a module, each as one vector.

    Parameters
    ----------
    module : nn.Module
        On its device; its parameters become views of the vector.
    """

    n_moments = 1

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        size = sum(parameter.numel() for parameter in named.values())
        device = next(iter(named.values())).device
        self.values = torch.zeros(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        shape = (size,) if self.n_moments == 1 else (self.n_moments, size)
        self.moments = torch.zeros(shape, device=device)
        self.shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        places = self._places()
        for name, parameter in named.items():
            view = _shaped(self.values, places[name], parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
        self.parameters = list(named.values())
        self._gradients = [
            _shaped(self.gradients, places[name], parameter.shape)
            for name, parameter in named.items()
        ]

    def _places(self) -> dict[str, slice]:
        places, start = {}, 0
        for name, shape in self.shapes.items():
            size = int(torch.Size(shape).numel())
            places[name] = slice(start, start + size)
            start += size
        return places

    def differentiate(self, loss: Tensor) -> None:
        """Put the gradient of `loss` into `gradients`."""
        found = torch.autograd.grad(loss, self.parameters)
        torch._foreach_copy_(self._gradients, list(found))

    def step_size(self, rate: float, done: int, law: PretrainSpec) -> float:
        """Return the factor of the next step after `done` steps, from the planned rate."""
        return rate

    @torch.no_grad()
    def update(self, rate: Tensor, law: PretrainSpec) -> None:
        """Take one step of gradient descent, with a rate that lies on the device."""
        gradient = torch.add(self.gradients, self.values, alpha=law.weight_decay)
        self.moments.mul_(law.momentum).add_(gradient)
        if law.nesterov:
            gradient.add_(self.moments, alpha=law.momentum)
        else:
            gradient = self.moments
        self.values.addcmul_(gradient, rate, value=-1.0)


class AdamWeights(FlatWeights):
    """The same with steps of Adam (Kingma and Ba, 2015), which do not depend on scales.

    Means are kept without correction; `step_size` corrects for their start at zero, so that
    nothing on the device counts steps.
    """

    n_moments = 2

    def step_size(self, rate: float, done: int, law: PretrainSpec) -> float:
        """Return the rate, corrected for both means' start at zero."""
        count = done + 1
        return rate * math.sqrt(1.0 - _FADING**count) / (1.0 - law.momentum**count)

    @torch.no_grad()
    def update(self, rate: Tensor, law: PretrainSpec) -> None:
        """Take one step, with a rate that lies on the device.

        Decay shrinks weights by itself (Loshchilov and Hutter, 2019): as a part of the gradient it
        would be all that is left where the loss is flat, and take full steps towards zero.
        """
        mean, square = self.moments
        mean.lerp_(self.gradients, 1.0 - law.momentum)
        square.mul_(_FADING).addcmul_(self.gradients, self.gradients, value=1.0 - _FADING)
        step = mean / square.sqrt().add_(_SMALLEST)
        self.values.addcmul_(step.add_(self.values, alpha=law.weight_decay), rate, value=-1.0)


def _shaped(vector: Tensor, place: slice, shape: torch.Size) -> Tensor:
    """Return a stretch of a vector as a parameter; kernels of convolutions keep channels last."""
    if len(shape) != 4:
        return vector[place].view(shape)
    out, channels, height, width = shape
    return vector[place].view(out, height, width, channels).permute(0, 3, 1, 2)


# RotNet: learn from images alone by telling which way up they are (Gidaris et al., 2018).

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
        built = build(NetworkSpec("nin4", spec.input_shape, 4, execution="single"))
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


# SimCLR: learn from images alone which two views show the same one (Chen et al., 2020).


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
            NetworkSpec("resnet18", spec.input_shape, 2, execution="single", width=spec.width)
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


# What a method of learning without labels must offer to the training loop.


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
