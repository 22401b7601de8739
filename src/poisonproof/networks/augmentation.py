"""Counter-based random numbers, equal on every device, and image augmentation that draws them.

Hand-written because torch's generators differ between devices and depend on what was drawn before,
and torchvision's transforms draw from them.

Philox-4x32-10 (Salmon et al., 2011) in int64 tensor operations. A draw is a function of its
address (seed, partition, purpose, epoch, row) alone, so no member can move another's stream, and
a resumed run continues where a finished one would have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum

import torch
from torch import Tensor

from poisonproof.networks.specification import Augmentation

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


class Purpose(IntEnum):
    """Purposes of draws; part of their addresses, so that purposes never share numbers."""

    SHUFFLE = 0
    CROP = 1
    AFFINE = 2
    COLOUR = 3
    CUTOUT = 4
    MIXUP = 5
    VIEW = 12
    INITIAL = 16


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Return four 32-bit words per counter, shape (..., 4), as int64; all words in [0, 2**32)."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)  # type: ignore[no-untyped-call]
    k0, k1 = key
    for _ in range(10):
        # The int64 product wraps modulo 2**64; masking after the shift drops the sign's copies.
        first, second = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            ((second >> 32) & _MASK) ^ c1 ^ k0,
            second & _MASK,
            ((first >> 32) & _MASK) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)


def uniform(words: Tensor) -> Tensor:
    """Map 32-bit words to float32 in [0, 1); exact, hence alike on every device."""
    return (words >> 8).to(torch.float32) * 2.0**-24


def below(words: Tensor, bound: int) -> Tensor:
    """Map 32-bit words to integers in [0, bound)."""
    return (words * bound) >> 32


class Stream:
    """The random streams of several members (`lanes`, S); `host` has them on the CPU."""

    def __init__(self, seed: int, lanes: Tensor, host: Tensor | None = None) -> None:
        self._seed, self._host = seed, host
        self._low = seed & _MASK
        self._high = (seed >> 32) & _MASK
        self.lanes = lanes.to(torch.int64)

    def on_host(self) -> Stream:
        """Return the same streams on the CPU."""
        return Stream(self._seed, self.lanes.cpu() if self._host is None else self._host)

    def words(self, purpose: int, epoch: int | Tensor, rows: Tensor) -> Tensor:
        """Draw four words per lane and row, shape (S, n, 4), or (E, S, n, 4).

        `epoch` may have shape (E, 1, 1); `rows`, numbers within the partition in canonical order,
        shape (n,), (S, n) or (E, S, n). The purpose ``INITIAL + j`` is for the j-th parameter.
        """
        rows = rows.expand(len(self.lanes), -1) if rows.ndim == 1 else rows
        device = rows.device

        def word(value: int | Tensor) -> Tensor:
            if isinstance(value, Tensor):
                return value
            # Filled on the device: a copy from the host would wait for all work queued there.
            return torch.full((), value, dtype=torch.int64, device=device)

        counter = (rows, word(epoch), word(int(purpose)), word(self._high))
        return philox(counter, (word(self._low), self.lanes[:, None]))

    def values(self, purpose: int, count: int) -> Tensor:
        """Draw `count` words per lane in one run, shape (S, count)."""
        blocks = torch.arange(-(-count // 4), device=self.lanes.device)
        return self.words(purpose, 0, blocks).reshape(len(self.lanes), -1)[:, :count]


# Random changes of training images, on the device. Draws are integers and alike on CPU and CUDA.
# Crop, flip and cutout only move or drop pixels, so their images are alike too; affine and colour
# round, and agree to about 1e-5.

Draw = Callable[[Purpose], Tensor]
"""From a purpose to four words per lane and row, shape (S, B, 4)."""


def augment(images: Tensor, rule: Augmentation, draw: Draw) -> Tensor:
    """Return changed copies of a batch (S, B, C, H, W) of raw pixels, in which black is zero."""
    for purpose, names, change in _CHANGES:
        if any(getattr(rule, name) for name in names):
            images = change(images, rule, draw(purpose))
    return images


def purposes(rule: Augmentation) -> list[Purpose]:
    """Return the purposes that a rule draws for."""
    return [purpose for purpose, names, _ in _CHANGES if any(getattr(rule, n) for n in names)]


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


def _cutout(images: Tensor, rule: Augmentation, words: Tensor) -> Tensor:
    side, (height, width) = rule.cutout, images.shape[-2:]
    top = below(words[..., 0], height)[..., None, None] - side // 2
    left = below(words[..., 1], width)[..., None, None] - side // 2
    y = torch.arange(height, device=images.device)[:, None]
    x = torch.arange(width, device=images.device)[None, :]
    hole = (y >= top) & (y < top + side) & (x >= left) & (x < left + side)
    return torch.where(hole[:, :, None], 0.0, images)


_CHANGES: tuple[tuple[Purpose, tuple[str, ...], Callable[..., Tensor]], ...] = (
    (Purpose.CROP, ("crop", "flip"), _crop_and_flip),
    (Purpose.AFFINE, ("rotate", "scale", "shift"), _affine),
    (Purpose.COLOUR, ("brightness", "contrast", "saturation"), _colour),
    (Purpose.CUTOUT, ("cutout",), _cutout),
)
"""Every change with what asks for it and what it draws for, in the order in which they are made."""
