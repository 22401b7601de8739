"""Which rows make up which step: a function of the member's own size and stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Purpose, Stream

__all__ = ["EpochPlan", "member_stream", "mixup_weights", "n_steps", "plan_epoch", "step_sizes"]

_LAST = 1 << 40
"""Larger than any draw: padding sorts behind every row."""


def member_stream(spec: TorchSpec, seed: int, indices: list[int], device: torch.device) -> Stream:
    """Return the streams of the members `indices`; dummy lanes draw from stream 0."""
    own = [max(i, 0) if spec.seed_rule == "partition" else 0 for i in indices]
    return Stream(seed, torch.tensor(own, dtype=torch.int64, device=device))


def n_steps(size: int, spec: TorchSpec) -> int:
    """Return the steps per epoch of a partition of `size` rows."""
    return -(-size // spec.batch_size)


def step_sizes(size: int, spec: TorchSpec) -> list[int]:
    """Return the rows of every step of an epoch; the last may be short."""
    starts = range(0, size, spec.batch_size)
    return [min(spec.batch_size, size - start) for start in starts]


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch for S lanes.

    Attributes
    ----------
    rows : int64 tensor of shape (S, T, B)
        Row numbers within each partition; 0 where a batch is short.
    counts : int64 tensor of shape (S, T)
        Rows in each batch; 0 where the lane has finished.
    """

    rows: Tensor
    counts: Tensor


def plan_epoch(spec: TorchSpec, stream: Stream, sizes: Tensor, epoch: int) -> EpochPlan:
    """Shuffle every lane's rows with its own draws and cut them into batches.

    The arithmetic is on integers, so its shape, which follows the longest lane, leaves no trace.
    """
    longest = int(sizes.max())
    steps = max(1, n_steps(longest, spec))
    span = steps * spec.batch_size
    position = torch.arange(span, device=sizes.device)
    words = stream.words(Purpose.SHUFFLE, epoch, position)[..., 0]
    words = torch.where(position < sizes[:, None], words, _LAST)
    rows = torch.sort(words, dim=1, stable=True).indices
    rows = torch.where(position < sizes[:, None], rows, 0)
    starts = torch.arange(steps, device=sizes.device) * spec.batch_size
    counts = (sizes[:, None] - starts).clamp(0, spec.batch_size)
    return EpochPlan(rows.view(len(sizes), steps, spec.batch_size), counts)


def mixup_weights(spec: TorchSpec, stream: Stream, epoch: int, steps: int) -> Tensor:
    """Draw the share of the first image per lane and step, Beta(a, a), shape (S, T).

    The quantile function runs on the host in float64, so every device gets the same numbers.
    """
    position = torch.arange(steps, device=stream.lanes.device)
    words = stream.words(Purpose.MIXUP, epoch, position)[..., 0].cpu().numpy()
    quantile = (words.astype(np.float64) + 0.5) * 2.0**-32
    share = betaincinv(spec.mixup, spec.mixup, quantile).astype(np.float32)
    return torch.from_numpy(share).to(stream.lanes.device)
