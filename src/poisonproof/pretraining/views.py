"""Random views of images, on the device: a part of the image, mirrored, in other colours.

Draws are integers from counter-based streams, alike on every device; the views themselves round.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from poisonproof.learners.torch.streams import uniform
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["LARGEST_RATIO", "PURPOSES", "framed", "make_views", "pixel_centres"]

PURPOSES = ((6, 7, 8), (9, 10, 11))
"""Addresses of the draws of the first and the second view: frame, choices, colours."""

_GRAY = (0.299, 0.587, 0.114)
LARGEST_RATIO = math.log(4 / 3)
"""Largest logarithm of width over height of a frame."""


def make_views(images: Tensor, spec: PretrainSpec, draw: dict[int, Tensor], number: int) -> Tensor:
    """Return one random view of every image, pixels between 0 and 1.

    Parameters
    ----------
    images : uint8 tensor of shape (n, C, H, W)
        A batch.
    spec : PretrainSpec
        What may change.
    draw : dict of int64 tensors of shape (n, 4)
        Words by purpose.
    number : {0, 1}
        Which of the two views.
    """
    frame, choice, colour = (uniform(draw[purpose]) for purpose in PURPOSES[number])
    mirrored = (
        (choice[:, 0] < 0.5) if spec.flip else torch.zeros_like(choice[:, 0], dtype=torch.bool)
    )
    area = spec.smallest_view + (1.0 - spec.smallest_view) * frame[:, 0]
    ratio = torch.exp((2.0 * frame[:, 1] - 1.0) * LARGEST_RATIO)
    views = framed(images.float() / 255.0, area, ratio, (frame[:, 2], frame[:, 3]), mirrored)
    if images.shape[1] != 3:
        return _brightened(views, spec, choice, colour)
    jittered = _jittered(views, spec.jitter, 2.0 * colour - 1.0)
    views = _chosen(choice[:, 1] < spec.jitter_share, jittered, views)
    return _chosen(choice[:, 2] < spec.gray_share, _gray(views).expand_as(views), views)


def _chosen(which: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.where(which.view(-1, 1, 1, 1), first, second)


def framed(
    x: Tensor, area: Tensor, ratio: Tensor, corner: tuple[Tensor, Tensor], mirrored: Tensor
) -> Tensor:
    """Cut out a frame of each image and stretch it to the whole image.

    Parameters
    ----------
    x : float32 tensor of shape (n, C, H, W)
        Images.
    area, ratio : float32 tensors of shape (n,)
        Share of the image in the frame, and its width over its height; what does not fit into
        the image is cut off.
    corner : two float32 tensors of shape (n,)
        From 0 to 1: how far to the right and down the frame lies.
    mirrored : bool tensor of shape (n,)
        Whether left and right change places.
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
    red, green, blue = _GRAY
    return red * x[:, 0:1] + green * x[:, 1:2] + blue * x[:, 2:3]


def _factor(largest: float, draw: Tensor) -> Tensor:
    return (1.0 + largest * draw).view(-1, 1, 1, 1)


def _jittered(x: Tensor, sizes: tuple[float, float, float, float], draw: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, in this order."""
    brightness, contrast, saturation, hue = sizes
    x = (x * _factor(brightness, draw[:, 0])).clamp(0.0, 1.0)
    mean = _gray(x).mean(dim=(1, 2, 3), keepdim=True)
    x = (mean + (x - mean) * _factor(contrast, draw[:, 1])).clamp(0.0, 1.0)
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


def _brightened(x: Tensor, spec: PretrainSpec, choice: Tensor, colour: Tensor) -> Tensor:
    """Change brightness and contrast of images without colour."""
    draw = 2.0 * colour - 1.0
    bright = (x * _factor(spec.jitter[0], draw[:, 0])).clamp(0.0, 1.0)
    mean = bright.mean(dim=(1, 2, 3), keepdim=True)
    changed = (mean + (bright - mean) * _factor(spec.jitter[1], draw[:, 1])).clamp(0.0, 1.0)
    return _chosen(choice[:, 1] < spec.jitter_share, changed, x)
