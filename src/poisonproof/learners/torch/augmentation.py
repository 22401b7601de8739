"""Random changes of training images, on the device, addressed by (seed, partition, epoch, row).

Draws are integers and alike on CPU and CUDA. Crop, flip and cutout only move or drop pixels, so
their images are alike too; affine and colour round, and agree to about 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from poisonproof.learners.torch.specification import Augmentation
from poisonproof.learners.torch.streams import Purpose, below, uniform

__all__ = ["Draw", "augment", "purposes"]


Draw = Callable[[Purpose], Tensor]
"""From a purpose to four words per lane and row, shape (S, B, 4)."""


def augment(images: Tensor, rule: Augmentation, draw: Draw) -> Tensor:
    """Return changed copies of a batch.

    Parameters
    ----------
    images : float32 tensor of shape (S, B, C, H, W)
        Raw pixels of S members, before normalisation: black is zero.
    rule : Augmentation
        What may change.
    draw : callable
        The members' draws for these rows in this epoch.
    """
    if rule.crop or rule.flip:
        images = _crop_and_flip(images, rule, draw(Purpose.CROP))
    if rule.has_affine:
        images = _affine(images, rule, draw(Purpose.AFFINE))
    if rule.has_colour:
        images = _colour(images, rule, draw(Purpose.COLOUR))
    if rule.cutout:
        images = _cutout(images, rule.cutout, draw(Purpose.CUTOUT))
    return images


def purposes(rule: Augmentation) -> list[Purpose]:
    """Return what a rule draws for."""
    wanted = {
        Purpose.CROP: rule.crop or rule.flip,
        Purpose.AFFINE: rule.has_affine,
        Purpose.COLOUR: rule.has_colour,
        Purpose.CUTOUT: rule.cutout,
    }
    return [purpose for purpose, needed in wanted.items() if needed]


def _crop_and_flip(images: Tensor, rule: Augmentation, words: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    y = torch.arange(height, device=images.device).expand(*words.shape[:2], -1)
    x = torch.arange(width, device=images.device).expand(*words.shape[:2], -1)
    if rule.flip:
        x = torch.where(below(words[..., 2:3], 2) == 1, width - 1 - x, x)
    if rule.crop:
        y = y + below(words[..., 0:1], 2 * rule.crop + 1) - rule.crop
        x = x + below(words[..., 1:2], 2 * rule.crop + 1) - rule.crop
    return _take(images, y[..., :, None], x[..., None, :])


def _take(images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Gather pixels (y, x) of every image; outside is black. `y`, `x` broadcast to (S, B, H, W)."""
    channels, height, width = images.shape[-3:]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    place = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
    place = place.flatten(2)[:, :, None, :].expand(-1, -1, channels, -1)
    taken = torch.gather(images.flatten(3), 3, place).view(images.shape)
    return torch.where(inside[:, :, None], taken, 0.0)


def _signed(words: Tensor) -> Tensor:
    return uniform(words) * 2.0 - 1.0


def _affine(images: Tensor, rule: Augmentation, words: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    draws = _signed(words)[..., None, None]
    angle = draws[:, :, 0] * (rule.rotate * math.pi / 180.0)
    size = 1.0 + draws[:, :, 1] * rule.scale
    y = torch.arange(height, device=images.device, dtype=torch.float32)[:, None]
    x = torch.arange(width, device=images.device, dtype=torch.float32)[None, :]
    y = y - (height - 1) / 2 - draws[:, :, 2] * (rule.shift * height)
    x = x - (width - 1) / 2 - draws[:, :, 3] * (rule.shift * width)
    cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
    source_y = cosine * y - sine * x + (height - 1) / 2
    source_x = sine * y + cosine * x + (width - 1) / 2
    low_y, low_x = source_y.floor(), source_x.floor()
    part_y, part_x = (source_y - low_y)[:, :, None], (source_x - low_x)[:, :, None]
    iy, ix = low_y.to(torch.int64), low_x.to(torch.int64)
    top = _take(images, iy, ix) * (1 - part_x) + _take(images, iy, ix + 1) * part_x
    bottom = _take(images, iy + 1, ix) * (1 - part_x) + _take(images, iy + 1, ix + 1) * part_x
    return top * (1 - part_y) + bottom * part_y


def _colour(images: Tensor, rule: Augmentation, words: Tensor) -> Tensor:
    signed = _signed(words)[..., None, None, None]
    images = images * (1.0 + signed[:, :, 0] * rule.brightness)
    if rule.contrast:
        mean = images.mean(dim=(2, 3, 4), keepdim=True)
        images = (images - mean) * (1.0 + signed[:, :, 1] * rule.contrast) + mean
    if rule.saturation:
        red, green, blue = images.chunk(3, dim=2)
        gray = red * 0.299 + green * 0.587 + blue * 0.114
        images = (images - gray) * (1.0 + signed[:, :, 2] * rule.saturation) + gray
    return images


def _cutout(images: Tensor, side: int, words: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    top = below(words[..., 0], height)[..., None, None] - side // 2
    left = below(words[..., 1], width)[..., None, None] - side // 2
    y = torch.arange(height, device=images.device)[:, None]
    x = torch.arange(width, device=images.device)[None, :]
    hole = (y >= top) & (y < top + side) & (x >= left) & (x < left + side)
    return torch.where(hole[:, :, None], 0.0, images)
