"""Tasks that features are learned from: rotations of images (RotNet), or pairs of views (SimCLR).

Hand-written because torchvision's views come from torch's global stream: here they are a function
of the seed, the epoch and the row, equal for every batch.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.exceptions import InvalidRowsError
from poisonproof.networks.augmentation import Purpose, augment, uniform
from poisonproof.networks.graphs import PretrainSGD
from poisonproof.networks.modules import build
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.specification import Augmentation, NetworkSpec


class Pixels:
    """Mean and standard deviation per channel, of pixels between 0 and 1, on a device."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean = torch.tensor(mean).view(-1, 1, 1) * 255.0
        self.std = torch.tensor(std).view(-1, 1, 1) * 255.0

    def to(self, device: torch.device) -> None:
        """Move both: a recorded step cannot fetch them from the host."""
        self.mean, self.std = self.mean.to(device), self.std.to(device)

    def normalised(self, x: Tensor) -> Tensor:
        """Return pixels (0 to 255) less the mean, in standard deviations."""
        return (x - self.mean) / self.std


def run_layers(layers: Iterable[nn.Module], x: Tensor, dtype: torch.dtype, train: bool) -> Tensor:
    """Send a batch (n, C, H, W) through the layers of Network in Network, products in `dtype`.

    Convolutions of one pixel, and the first one of a gray image, are matrix products; pooling is a
    maximum of slices, whose gradient needs no atomic additions. Activations keep channels last.
    With `train`, batch norm uses the batch (and moves the running statistics).
    """
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            x = convolve(x, layer, dtype)
        elif isinstance(layer, nn.BatchNorm2d):
            own = (layer.running_mean, layer.running_var, layer.weight, layer.bias)
            x = functional.batch_norm(x, *own, train, 0.1)
        elif isinstance(layer, nn.ReLU):
            x = x.relu()
        elif isinstance(layer, nn.MaxPool2d):
            x = max_pool(x)
        elif isinstance(layer, nn.AvgPool2d):
            x = functional.avg_pool2d(x, 3, 2, 1)
        else:
            raise TypeError(f"no rule for a layer of type {type(layer).__name__}")
    return x


def convolve(x: Tensor, layer: nn.Conv2d, dtype: torch.dtype) -> Tensor:
    """Return a convolution without bias, same padding, in `dtype`."""
    weight, side = layer.weight.to(dtype), layer.kernel_size[0]
    x = x.to(dtype)
    if side == 1 and layer.stride[0] == 1:
        return functional.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)
    if x.shape[1] == 1 and layer.stride[0] == 1:
        columns = _columns(x[:, 0], side)
        kernels = functional.pad(weight.flatten(1), (0, columns.shape[-1] - side * side))
        return functional.linear(columns, kernels).permute(0, 3, 1, 2)
    return functional.conv2d(x, weight, None, layer.stride, layer.padding)


def _columns(x: Tensor, side: int) -> Tensor:
    """Lay out the window of every pixel of a gray image, (n, H, W, columns), padded to eights."""
    border = side // 2
    padded = functional.pad(x, (border, border, border, border))
    height, width = x.shape[1:]
    windows = [
        padded[:, dy : dy + height, dx : dx + width] for dy in range(side) for dx in range(side)
    ]
    windows += [torch.zeros_like(x)] * (-len(windows) % 8)
    return torch.stack(windows, dim=-1)


def max_pool(x: Tensor) -> Tensor:
    """Return the maximum of every second window of 3 x 3 pixels; no value is negative."""
    x = functional.pad(x, (1, 1, 1, 1))
    x = torch.maximum(torch.maximum(x[:, :, 0:-2:2], x[:, :, 1:-1:2]), x[:, :, 2::2])
    return torch.maximum(torch.maximum(x[..., 0:-2:2], x[..., 1:-1:2]), x[..., 2::2])


def as_images(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return images as uint8, shape (n, C, H, W)."""
    images = np.asarray(X)
    whole = (images.ndim == 4 and images.shape[1:] == shape) or (
        images.ndim == 3 and shape[0] == 1 and images.shape[1:] == shape[1:]
    )
    if images.dtype != np.uint8 or not whole:
        raise InvalidRowsError(
            f"Learned features take images of integer pixels (uint8) and shape {shape}, channels"
            f" first; got {images.dtype} of shape {images.shape[1:]}."
        )
    return np.ascontiguousarray(images).reshape(len(images), *shape)


def sorted_images(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return all images sorted by value; the caller's order may follow labels."""
    images = as_images(X, shape)
    if not len(images):
        raise InvalidRowsError("There are no images to learn from.")
    flat = np.ascontiguousarray(images.reshape(len(images), -1)[:, ::-1])
    # Rows of one length compare as byte strings: NumPy drops zeros at the end of both alike.
    order = np.argsort(flat.view(f"S{flat.shape[1]}").ravel(), kind="stable")
    return images[order]


def samples_digest(images: NDArray[np.uint8]) -> str:
    """Return the SHA-256 of images and their shape."""
    sha = hashlib.sha256(f"{images.shape}".encode())
    sha.update(np.ascontiguousarray(images).data)
    return sha.hexdigest()


# Random views of images, on the device: a part of the image, mirrored, in other colours.
#
# Draws are integers from counter-based streams, alike on every device; the views themselves round.

PURPOSES = ((6, 7, 8), (9, 10, 11))
"""Addresses of the draws of the first and the second view: frame, choices, colours."""

_GRAY = (0.299, 0.587, 0.114)
LARGEST_RATIO = math.log(4 / 3)
"""Largest logarithm of width over height of a frame."""


def make_views(images: Tensor, spec: PretrainSpec, draw: dict[int, Tensor], number: int) -> Tensor:
    """Return random view 0 or 1 of every image (n, C, H, W), from words (n, 4) by purpose."""
    frame, choice, colour = (uniform(draw[purpose]) for purpose in PURPOSES[number])
    mirrored = (
        (choice[:, 0] < 0.5) if spec.flip else torch.zeros_like(choice[:, 0], dtype=torch.bool)
    )
    area = spec.smallest_view + (1.0 - spec.smallest_view) * frame[:, 0]
    ratio = torch.exp((2.0 * frame[:, 1] - 1.0) * LARGEST_RATIO)
    views = framed(images.float() / 255.0, area, ratio, (frame[:, 2], frame[:, 3]), mirrored)
    jittered = _jittered(views, spec.jitter, 2.0 * colour - 1.0)
    views = _chosen(choice[:, 1] < spec.jitter_share, jittered, views)
    if images.shape[1] != 3:
        return views
    return _chosen(choice[:, 2] < spec.gray_share, _gray(views).expand_as(views), views)


def _chosen(which: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.where(which.view(-1, 1, 1, 1), first, second)


def framed(
    x: Tensor, area: Tensor, ratio: Tensor, corner: tuple[Tensor, Tensor], mirrored: Tensor
) -> Tensor:
    """Cut out a frame of each image and stretch it to the whole image.

    `area` is the share of the image in the frame, `ratio` its width over its height (what does not
    fit into the image is cut off), `corner` how far right and down it lies, from 0 to 1. Left and
    right change places where `mirrored`.
    """
    wide = torch.sqrt(area * ratio).clamp(max=1.0)
    high = torch.sqrt(area / ratio).clamp(max=1.0)
    left, top = (1.0 - wide) * corner[0], (1.0 - high) * corner[1]
    height, width = x.shape[2:]
    across = pixel_centres(width, x.device)
    across = torch.where(mirrored[:, None], -across, across)
    columns = (2.0 * left + wide - 1.0)[:, None] + wide[:, None] * across
    lines = (2.0 * top + high - 1.0)[:, None] + high[:, None] * pixel_centres(height, x.device)
    grid = torch.stack(
        [columns[:, None, :].expand(-1, height, -1), lines[:, :, None].expand(-1, -1, width)], -1
    )
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=False)


def pixel_centres(side: int, device: torch.device) -> Tensor:
    """Return where the pixels of a side lie, from -1 to 1, as `grid_sample` takes them."""
    return (2.0 * torch.arange(side, device=device) + 1.0) / side - 1.0


def _gray(x: Tensor) -> Tensor:
    """Return how bright images are; without colours they say so themselves."""
    if x.shape[1] != 3:
        return x
    red, green, blue = _GRAY
    return red * x[:, 0:1] + green * x[:, 1:2] + blue * x[:, 2:3]


def _factor(largest: float, draw: Tensor) -> Tensor:
    return (1.0 + largest * draw).view(-1, 1, 1, 1)


def _jittered(x: Tensor, sizes: tuple[float, float, float, float], draw: Tensor) -> Tensor:
    """Change brightness and contrast, and then saturation and hue of images in colour."""
    brightness, contrast, saturation, hue = sizes
    x = (x * _factor(brightness, draw[:, 0])).clamp(0.0, 1.0)
    mean = _gray(x).mean(dim=(1, 2, 3), keepdim=True)
    x = (mean + (x - mean) * _factor(contrast, draw[:, 1])).clamp(0.0, 1.0)
    if x.shape[1] != 3:
        return x
    gray = _gray(x)
    x = (gray + (x - gray) * _factor(saturation, draw[:, 2])).clamp(0.0, 1.0)
    return _turned(x, (hue * draw[:, 3]).view(-1, 1, 1))


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of the colour circle, keeping value and saturation.

    With m the smallest and v the largest channel, channel c of a hue h is
    v - (v - m) * clip(min(t, 4 - t), 0, 1), where t = (5 - 2 c + 6 h) mod 6 and red, green, blue
    are c = 0, 1, 2.
    """
    value, least = x.amax(dim=1), x.amin(dim=1)
    spread = value - least
    safe = torch.where(spread > 0, spread, 1.0)
    red, green, blue = x.unbind(dim=1)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2.0 + (blue - red) / safe, 4.0 + (red - green) / safe),
    )
    sector = sector + 6.0 * turn
    channels = []
    for number in (5.0, 3.0, 1.0):
        t = torch.remainder(number + sector, 6.0)
        channels.append(value - spread * torch.minimum(t, 4.0 - t).clamp(0.0, 1.0))
    return torch.stack(channels, dim=1)


# The tasks: what is learned from such images.


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
        """Return cross-entropy over the four rotations, and the share recognised correctly."""
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
    """ResNet-18 that learns which two views show the same image (Chen et al., 2020)."""

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
