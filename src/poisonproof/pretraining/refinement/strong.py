"""Strong views of images, on the device: turned, sheared, shifted, in other tones, a part hidden.

The changes are those of RandAugment (Cubuk et al., 2020) as used for self-labelling, without
equalisation. There, four of fourteen are drawn and applied in turn; here each takes part with the
same chance, in a fixed order, so that all of geometry is one resampling.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from poisonproof.learners.torch.streams import uniform
from poisonproof.pretraining.views import pixel_centres

__all__ = ["STRONG", "strong_views"]

STRONG = ((12, 13, 14, 15), (6, 7, 8, 9))
"""Addresses of the draws of a strong view, and of a second one of another image."""

_CHANCE = 0.25
"""Of each change: 1 - (13/14)^4, as if four of fourteen were drawn."""
_TURN, _SHEAR, _SHIFT = math.pi / 6, 0.3, 0.3
_LEAST, _MOST = 0.05, 0.95
"""Range of the factors of colour, contrast, brightness and sharpness."""
_HOLE = 0.5
"""Side of the hidden square, in sides of the image."""


def strong_views(images: Tensor, flip: bool, draw: tuple[Tensor, ...]) -> Tensor:
    """Return one strong view of every image, pixels between 0 and 1.

    Parameters
    ----------
    images : uint8 tensor of shape (n, C, H, W)
        A batch.
    flip : bool
        Whether views may be mirrored left-right.
    draw : four int64 tensors of shape (n, 4)
        Words for which changes of geometry, how large, which changes of tone, how large.
    """
    choice, size, tone_choice, tone_size = (uniform(words) for words in draw)
    x = _moved(images.float() / 255.0, flip, choice, size)
    x = _toned(x, tone_choice, tone_size, _spare(choice), _spare(tone_choice))
    return _hidden(x, _spare(size))


def _spare(draw: Tensor) -> Tensor:
    """Return further numbers in [0, 1): the low bits of a draw that decided by its high ones."""
    return torch.remainder(draw * 4096.0, 1.0)


def _moved(x: Tensor, flip: bool, choice: Tensor, size: Tensor) -> Tensor:
    """Turn, shear and shift by one map of coordinates; what comes from outside is black."""
    signed = 2.0 * size - 1.0
    spare = _spare(size)
    chosen = (choice < _CHANCE).float()
    turn = chosen[:, 0] * signed[:, 0] * _TURN
    across = chosen[:, 1] * signed[:, 1] * _SHEAR
    along = chosen[:, 2] * signed[:, 2] * _SHEAR
    # A shift is in the two directions or in one, each with its own chance.
    which = _spare(choice)
    right = (which[:, 0] < _CHANCE) * (2.0 * spare[:, 2] - 1.0) * (2.0 * _SHIFT)
    down = (which[:, 1] < _CHANCE) * (2.0 * spare[:, 3] - 1.0) * (2.0 * _SHIFT)
    cosine, sine = torch.cos(turn), torch.sin(turn)
    mirror = 1.0 - 2.0 * (choice[:, 3] < 0.5).float() if flip else torch.ones_like(turn)
    height, width = x.shape[2:]
    columns = pixel_centres(width, x.device)[None, None, :]
    lines = pixel_centres(height, x.device)[None, :, None]

    def at(row: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        a, b, c = (value.view(-1, 1, 1) for value in row)
        return a * columns + b * lines + c

    grid_x = at((mirror * (cosine + sine * along), mirror * (cosine * across + sine), right))
    grid_y = at((cosine * along - sine, cosine - sine * across, down))
    grid = torch.stack([grid_x.expand(-1, height, width), grid_y.expand(-1, height, width)], -1)
    return functional.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def _toned(x: Tensor, choice: Tensor, size: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Change colour, contrast, brightness, sharpness, range, negative and depth, in this order."""
    factor = _LEAST + (_MOST - _LEAST) * size
    gray = x.mean(dim=1, keepdim=True)
    x = _mixed(choice[:, 0], factor[:, 0], gray.expand_as(x), x)
    x = _mixed(choice[:, 1], factor[:, 1], gray.mean(dim=(2, 3), keepdim=True).expand_as(x), x)
    x = _mixed(choice[:, 2], factor[:, 2], torch.zeros_like(x), x)
    x = _mixed(choice[:, 3], factor[:, 3], _smoothed(x), x)
    x = _where(first[:, 2], _stretched(x), x)
    x = _where(first[:, 3], torch.where(x >= second[:, 0].view(-1, 1, 1, 1), 1.0 - x, x), x)
    levels = torch.exp2(4.0 + torch.floor(second[:, 1] * 5.0)).view(-1, 1, 1, 1)
    return _where(second[:, 2], torch.floor(x * 255.0 / 256.0 * levels) / levels, x)


def _where(draw: Tensor, changed: Tensor, x: Tensor) -> Tensor:
    return torch.where((draw < _CHANCE).view(-1, 1, 1, 1), changed, x)


def _mixed(draw: Tensor, factor: Tensor, other: Tensor, x: Tensor) -> Tensor:
    """Go from `other` towards the image by a factor, where drawn."""
    return _where(draw, other + (x - other) * factor.view(-1, 1, 1, 1), x)


def _smoothed(x: Tensor) -> Tensor:
    """Return the mean of every pixel (five times) and its eight neighbours."""
    # The border is repeated by hand: the compiler cannot follow torch's own way of doing it.
    wide = torch.cat([x[..., :1], x, x[..., -1:]], dim=-1)
    high = torch.cat([wide[..., :1, :], wide, wide[..., -1:, :]], dim=-2)
    return (9.0 * functional.avg_pool2d(high, 3, 1) + 4.0 * x) / 13.0


def _stretched(x: Tensor) -> Tensor:
    """Stretch the values of every channel from 0 to 1."""
    least, most = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    spread = most - least
    return torch.where(spread > 0, (x - least) / torch.where(spread > 0, spread, 1.0), x)


def _hidden(x: Tensor, draw: Tensor) -> Tensor:
    """Hide a square around a random pixel behind gray."""
    height, width = x.shape[2:]
    middle_y, middle_x = (draw[:, 0] * height).view(-1, 1, 1), (draw[:, 1] * width).view(-1, 1, 1)
    y = torch.arange(height, device=x.device).view(1, -1, 1) + 0.5
    across = torch.arange(width, device=x.device).view(1, 1, -1) + 0.5
    hole = ((y - middle_y).abs() < _HOLE * height / 2) & (
        (across - middle_x).abs() < _HOLE * width / 2
    )
    return torch.where(hole[:, None], 0.5, x)
