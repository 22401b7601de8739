"""Cross-entropy per member: a mean over its own rows, and over nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["lane_losses", "mix", "soft_labels"]


def soft_labels(y: Tensor, spec: TorchSpec) -> Tensor:
    """Return one distribution over classes per label, smoothed as the specification says."""
    even = spec.label_smoothing / spec.n_classes
    sharp = torch.nn.functional.one_hot(y, spec.n_classes).to(torch.float32)
    return sharp * (1.0 - spec.label_smoothing) + even


def mix(values: Tensor, share: Tensor, counts: Tensor) -> Tensor:
    """Blend row j of a batch with row n-1-j of the same batch (mixup).

    Parameters
    ----------
    values : tensor of shape (S, B, ...)
        Images or label distributions.
    share : tensor of shape (S,)
        Weight of the row itself.
    counts : int64 tensor of shape (S,)
        Rows of the batch; rows behind them stay where they are.
    """
    place = torch.arange(values.shape[1], device=values.device)
    partner = counts[:, None] - 1 - place
    partner = torch.where(partner >= 0, partner, place)
    flat = values.flatten(2)
    other = torch.gather(flat, 1, partner[..., None].expand_as(flat)).view_as(values)
    weight = share.view(-1, *(1,) * (values.ndim - 1))
    return values * weight + other * (1.0 - weight)


def lane_losses(
    logits: Tensor, targets: Tensor, counts: Tensor, total: Tensor | None = None
) -> Tensor:
    """Return the cross-entropy of every lane over its first `counts` rows, shape (S,).

    Parameters
    ----------
    logits, targets : tensors of shape (S, B, C)
        Scores and label distributions.
    counts : int64 tensor of shape (S,)
        Real rows; a lane without any has loss zero.
    total : int64 tensor of shape (S,), optional
        What to divide by, if these rows are a part of the batch; `counts` by default.
    """
    per_row = -(torch.log_softmax(logits.float(), dim=-1) * targets).sum(dim=-1)
    real = torch.arange(logits.shape[1], device=logits.device) < counts[:, None]
    # `where`, not a product: zero times an infinite padding loss would be NaN.
    return torch.where(real, per_row, 0.0).sum(dim=1) / (counts if total is None else total).clamp(
        min=1
    )
