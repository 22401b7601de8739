"""Which rows make up which step: a function of the member's own size and stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from poisonproof.engines.torch.device import sent
from poisonproof.learners.torch.augmentation import Draw, purposes
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Purpose, Stream

__all__ = ["Step", "member_stream", "n_steps", "planned_epochs", "planned_steps"]

_LAST = 1 << 40
"""Larger than any draw: padding sorts behind every row."""

_EPOCHS = 25
"""Epochs planned at once; integers and tables only, so it leaves no trace in a member."""


def member_stream(spec: TorchSpec, seed: int, indices: list[int], device: torch.device) -> Stream:
    """Return the streams of the members `indices`; dummy lanes draw from stream 0."""
    own = [max(i, 0) if spec.seed_rule == "partition" else 0 for i in indices]
    host = torch.tensor(own, dtype=torch.int64)
    return Stream(seed, sent(host, device), host)


def n_steps(size: int, spec: TorchSpec) -> int:
    """Return the steps per epoch of a partition of `size` rows."""
    return max(1, -(-size // spec.batch_size))


@dataclass(frozen=True)
class Step:
    """One step of S lanes.

    Attributes
    ----------
    rows : int64 tensor of shape (S, B)
        Row numbers within each partition; 0 where a batch is short.
    counts : int64 tensor of shape (S,)
        Rows in each batch; 0 where the lane has finished its epoch.
    sizes : list of int
        `counts` on the host.
    rates : float32 tensor of shape (S,)
        Learning rate of each lane.
    share : float32 tensor of shape (S,) or None
        Mixup's weight of the first image.
    draw : callable
        Words for augmentation, shape (S, B, 4).
    epoch : int
        Counted from 0.
    """

    rows: Tensor
    counts: Tensor
    sizes: list[int]
    rates: Tensor
    share: Tensor | None
    draw: Draw
    epoch: int

    def tiles(self, height: int) -> Iterator[Step]:
        """Cut the step into tiles of `height` rows, as many as the fullest lane needs."""
        for start in range(0, max(self.sizes), height):
            rows = self.rows[:, start : start + height]
            yield replace(
                self,
                rows=torch.nn.functional.pad(rows, (0, height - rows.shape[1])),
                counts=(self.counts - start).clamp(0, height),
                sizes=[min(max(size - start, 0), height) for size in self.sizes],
            )


def planned_steps(spec: TorchSpec, stream: Stream, sizes: list[int]) -> Iterator[Step]:
    """Yield every step of the training of S lanes.

    Each lane's rows are shuffled with its own draws and cut into batches. The arithmetic is on
    integers, so its shape, which follows the longest lane, leaves no trace.
    """
    counts = _counts(spec, sizes)
    on_device = sent(torch.tensor(counts), stream.lanes.device)
    for block, e in _epochs(spec, stream, sizes):
        for t, own in enumerate(counts):
            share = None if block.shares is None else block.shares[e, :, t]
            draw, when = block.drawn(e, slice(None), t), block.first + e
            yield Step(block.rows[e, :, t], on_device[t], own, block.rates[e, t], share, draw, when)


def planned_epochs(spec: TorchSpec, stream: Stream, size: int) -> Iterator[Step]:
    """Yield every epoch of one member: its steps side by side, as if each were a lane."""
    counts = [own for (own,) in _counts(spec, [size])]
    on_device = sent(torch.tensor(counts), stream.lanes.device)
    for block, e in _epochs(spec, stream, [size]):
        share = None if block.shares is None else block.shares[e, 0]
        draw, when = block.drawn(e, 0, slice(None)), block.first + e
        yield Step(block.rows[e, 0], on_device, counts, block.rates[e, :, 0], share, draw, when)


def _counts(spec: TorchSpec, sizes: list[int]) -> list[list[int]]:
    """Return the rows of every lane in every step of an epoch."""
    return [
        [min(max(size - t * spec.batch_size, 0), spec.batch_size) for size in sizes]
        for t in range(n_steps(max(sizes), spec))
    ]


def _epochs(spec: TorchSpec, stream: Stream, sizes: list[int]) -> Iterator[tuple[_Block, int]]:
    for start in range(0, spec.epochs, _EPOCHS):
        epochs = range(start, min(start + _EPOCHS, spec.epochs))
        block = _Block(spec, stream, sizes, epochs)
        yield from ((block, e) for e in range(len(epochs)))


class _Block:
    """Rows, rates and draws of several epochs, made in one go."""

    def __init__(self, spec: TorchSpec, stream: Stream, sizes: list[int], epochs: range) -> None:
        device, longest = stream.lanes.device, max(sizes)
        self.first = epochs.start
        steps = n_steps(longest, spec)
        lengths = sent(torch.tensor(sizes), device)
        place = torch.arange(longest, device=device)
        when = torch.arange(epochs.start, epochs.stop, device=device)[:, None, None]
        words = stream.words(Purpose.SHUFFLE, when, place)[..., 0]
        real = place < lengths[:, None]
        rows = torch.sort(torch.where(real, words, _LAST), dim=2, stable=True).indices
        spare = steps * spec.batch_size - longest
        rows = torch.nn.functional.pad(torch.where(real, rows, 0), (0, spare))
        shape = (len(epochs), len(lengths), steps, spec.batch_size)
        self.rows = rows.view(shape)
        self.words = {
            purpose: stream.words(purpose, when, rows).view(*shape, 4)
            for purpose in purposes(spec.augmentation)
        }
        self.rates = sent(_rates(spec, sizes, epochs, steps), device)
        self.shares = sent(_mixup(spec, stream, epochs, steps), device) if spec.mixup else None

    def drawn(self, e: int, lanes: slice | int, steps: slice | int) -> Draw:
        return lambda purpose: self.words[purpose][e, lanes, steps]


def _rates(spec: TorchSpec, sizes: list[int], epochs: range, steps: int) -> Tensor:
    """Return the learning rate per epoch, step and lane, shape (E, T, S)."""
    own = [n_steps(size, spec) for size in sizes]
    table = [[[spec.rate(e, t, s) for s in own] for t in range(steps)] for e in epochs]
    return torch.tensor(table, dtype=torch.float32)


def _mixup(spec: TorchSpec, stream: Stream, epochs: range, steps: int) -> Tensor:
    """Draw Beta(a, a) per epoch, lane and step, shape (E, S, T).

    All on the host, the quantile function in float64: every device gets the same numbers.
    """
    when = torch.arange(epochs.start, epochs.stop)[:, None, None]
    words = stream.on_host().words(Purpose.MIXUP, when, torch.arange(steps))[..., 0].numpy()
    quantile = (words.astype(np.float64) + 0.5) * 2.0**-32
    share = betaincinv(spec.mixup, spec.mixup, quantile).astype(np.float32)
    return torch.from_numpy(share)
