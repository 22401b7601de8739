"""What refined clusters are asked for, in formulas without labels (Van Gansbeke et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["agreement", "self_labels"]

_FEW = 0.25
"""A cluster that is sure of less than this share of its images is sure of few."""
_LEAST = 1e-8
"""Smallest probability whose logarithm is taken."""


def agreement(first: Tensor, second: Tensor, entropy_weight: float) -> tuple[Tensor, Tensor]:
    """Return how little pairs agree, less the weighted entropy of the clusters' sizes.

    Parameters
    ----------
    first, second : float32 tensors of shape (..., n, K)
        Logits of images and of one neighbour each.
    entropy_weight : float
        Weight of the entropy of the mean over `first`.

    Returns
    -------
    loss, share : tensors of shape (...)
        Mean of -log of the chance to draw the same cluster, less the weighted entropy; and the
        share of pairs with the same cluster.

    Examples
    --------
    >>> sure = 20.0 * torch.eye(2)
    >>> [round(value.item(), 4) for value in agreement(sure, sure, 1.0)]
    [-0.6931, 1.0]
    """
    logs = torch.log_softmax(first, dim=-1)
    same = torch.logsumexp(logs + torch.log_softmax(second, dim=-1), dim=-1)
    share = (first.argmax(dim=-1) == second.argmax(dim=-1)).float().mean(dim=-1)
    return -same.mean(dim=-1) - entropy_weight * _entropy(logs), share


def _entropy(logs: Tensor) -> Tensor:
    """Return the entropy of mean probabilities: largest when all clusters are of one size."""
    sizes = logs.exp().mean(dim=-2)
    return -(sizes * sizes.clamp(min=_LEAST).log()).sum(dim=-1)


def self_labels(
    weak: Tensor, strong: Tensor, confidence: float, entropy_weight: float
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of strong views with the sure clusters of the images themselves.

    Every cluster that is sure of an image of the batch counts alike, however many these are;
    otherwise large clusters would swallow small ones. A cluster that is sure of few of its images
    would not be taught and lose them all; there the surer ones of them teach. The entropy of sizes
    keeps all clusters in use.

    Parameters
    ----------
    weak, strong : float32 tensors of shape (n, K)
        Logits of the images, which only teach, and of their strong views.
    confidence : float
        Least probability of a sure cluster.
    entropy_weight : float
        Weight of the entropy of the mean over `strong`.

    Returns
    -------
    loss, share : tensors of shape ()
        The loss, and the share of images that teach.

    Examples
    --------
    >>> weak, strong = 10.0 * torch.eye(2), torch.zeros(2, 2)
    >>> [round(value.item(), 4) for value in self_labels(weak, strong, 0.99, 0.0)]
    [0.6931, 1.0]
    """
    chance, cluster = torch.softmax(weak, dim=-1).max(dim=-1)
    numbers = torch.arange(weak.shape[-1], device=weak.device)
    members = (cluster[:, None] == numbers).float()
    taught = (
        members * (chance >= (members * _bars(chance, members, confidence)).sum(dim=1))[:, None]
    )
    counts = taught.sum(dim=0)
    weights = taught / counts.clamp(min=1.0) / (counts > 0).sum().clamp(min=1)
    logs = torch.log_softmax(strong, dim=-1)
    return -(weights * logs).sum() - entropy_weight * _entropy(logs), taught.sum() / len(weak)


def _bars(chance: Tensor, members: Tensor, confidence: float) -> Tensor:
    """Return the probability from which on images of each cluster teach, shape (K,)."""
    counts = members.sum(dim=0)
    sure = (members * (chance >= confidence)[:, None]).sum(dim=0)
    mean = (members * chance[:, None]).sum(dim=0) / counts.clamp(min=1.0)
    return torch.where(sure < _FEW * counts, mean.clamp(max=confidence), confidence)
