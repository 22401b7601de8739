"""Linear heads on frozen features, from several starts; the one with the least loss is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from poisonproof.learners.clusters.spectral import (
    leading_vectors,
    neighbor_graph,
    read_clusters,
)
from poisonproof.learners.torch.streams import Purpose, Stream, below, uniform
from poisonproof.pretraining.flat import AdamWeights
from poisonproof.pretraining.refinement.losses import agreement
from poisonproof.pretraining.refinement.specification import RefineSpec
from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["PICK", "FittedHead", "discriminant", "fit_head", "spectral_start"]

PICK = 10
"""Address of the draw of a neighbour."""
_STEEPEST = 2.0
"""Largest root mean square of logits that training starts from. Steeper heads are as good as sure
of everything: where they err the loss explodes, elsewhere no gradient is left."""
_RIDGE = 1e-3
"""Added to the within-cluster covariance, in parts of its mean diagonal."""


@dataclass(frozen=True)
class FittedHead:
    """A linear map from features to clusters.

    Attributes
    ----------
    weight, bias : float32 ndarrays of shape (K, d) and (K,)
        Logits are ``features @ weight.T + bias``.
    losses : list of float
        The loss of every start over all images; the spectral one is the first.
    chosen : int
        The start with the least loss.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    losses: list[float]
    chosen: int


def fit_head(
    vectors: NDArray[np.float32],
    neighbours: NDArray[np.int64],
    spec: RefineSpec,
    network: PretrainSpec,
) -> FittedHead:
    """Train heads that give neighbours the same cluster, and keep the best by that loss.

    Parameters
    ----------
    vectors : ndarray of shape (n, d)
        Frozen features of all images.
    neighbours : ndarray of shape (n, N)
        Their nearest other images, nearest first, at least `n_neighbors` and `graph_neighbors`.
    spec : RefineSpec
        The law.
    network : PretrainSpec
        Where to compute.
    """
    first = spectral_start(neighbours[:, : spec.graph_neighbors], spec.n_clusters)
    device = torch.device(network.device)
    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).mean())) or 1.0
    scaled = ((vectors - centre) / scale).astype(np.float32)
    lanes = torch.arange(1 + spec.random_starts, device=device)
    start = tamed(scaled, *discriminant(scaled, first, spec.n_clusters))
    heads = _Heads(start, Stream(spec.seed, lanes))
    heads.to(device)
    data = torch.from_numpy(scaled).to(device)
    table = torch.from_numpy(neighbours[:, : spec.n_neighbors]).to(device)
    _train(heads, data, table, spec, spec.stage(network, "head"))
    losses = _losses(heads, data, table, spec.entropy_weight)
    best = int(np.argmin(losses))
    found = (heads.weight[best], heads.bias[best, 0])
    weight, bias = (value.detach().cpu().numpy().astype(np.float64) for value in found)
    weight, bias = tamed(scaled, weight, bias)
    weight = weight / scale
    bias = bias - weight @ centre
    return FittedHead(weight.astype(np.float32), bias.astype(np.float32), losses, best)


def spectral_start(neighbours: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Return the spectral clusters of the graph of neighbours, shape (n,)."""
    with threadpool_limits(limits=1):
        return read_clusters(leading_vectors(neighbor_graph(neighbours), n_clusters))


def discriminant(
    vectors: NDArray[Any], clusters: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weight (K, d) and bias (K,) of the linear discriminant of clusters.

    An empty cluster starts at the mean of all rows.
    """
    X = vectors.astype(np.float64)
    members = np.eye(n_clusters)[clusters]
    sizes = members.sum(axis=0)
    means = np.where(sizes[:, None] > 0, members.T @ X, X.sum(axis=0))
    means /= np.where(sizes > 0, sizes, len(X))[:, None]
    inner = X - means[clusters]
    covariance = inner.T @ inner / len(X)
    covariance += (_RIDGE * np.trace(covariance) / len(covariance) + 1e-12) * np.eye(X.shape[1])
    weight = np.linalg.solve(covariance, means.T).T.astype(np.float64)
    shares = (sizes + 1.0) / (len(X) + n_clusters)
    return weight, np.log(shares) - 0.5 * (weight * means).sum(axis=1)


def tamed(
    vectors: NDArray[Any], weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the head with logits no steeper than training can start from; clusters stay."""
    logits = vectors @ weight.T + bias
    logits -= logits.mean(axis=1, keepdims=True)
    factor = min(1.0, _STEEPEST / max(float(np.sqrt((logits**2).mean())), 1e-12))
    return factor * weight, factor * bias


class _Heads(nn.Module):
    """All heads side by side: the first as given, the others drawn."""

    def __init__(
        self, first: tuple[NDArray[np.float64], NDArray[np.float64]], stream: Stream
    ) -> None:
        super().__init__()
        weight, bias = first
        k, d = weight.shape
        drawn = (2.0 * uniform(stream.values(Purpose.INITIAL, k * d)) - 1.0) / d**0.5
        weights, biases = drawn.view(-1, k, d).cpu(), torch.zeros(len(drawn), 1, k)
        weights[0], biases[0, 0] = torch.from_numpy(weight), torch.from_numpy(bias)
        self.weight, self.bias = nn.Parameter(weights), nn.Parameter(biases)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape (heads, n, K)."""
        return torch.matmul(x, self.weight.transpose(1, 2)) + self.bias


def _train(
    heads: _Heads, data: Tensor, table: Tensor, spec: RefineSpec, stage: PretrainSpec
) -> None:
    """Descend on the sum of losses; Adam treats every number alone, so heads do not meet."""
    weights = AdamWeights(heads)
    steps = max(1, len(data) // stage.batch_size)
    for epoch in range(stage.epochs):
        planned = [
            weights.step_size(stage.rate(epoch, step, steps), epoch * steps + step, stage)
            for step in range(steps)
        ]
        rates = torch.tensor(planned, device=data.device)
        for rate, (rows, others) in zip(rates, _pairs(table, spec, stage, epoch), strict=True):
            loss, _ = agreement(heads(data[rows]), heads(data[others]), spec.entropy_weight)
            weights.differentiate(loss.sum())
            weights.update(rate, stage)


def _pairs(
    table: Tensor, spec: RefineSpec, stage: PretrainSpec, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows of a step and one neighbour of each."""
    n, device = len(table), table.device
    stream = Stream(spec.seed, torch.zeros(1, dtype=torch.int64, device=device))
    place = torch.arange(n, device=device)
    order = torch.sort(stream.words(Purpose.SHUFFLE, epoch, place)[0, :, 0], stable=True).indices
    chosen = below(stream.words(PICK, epoch, place)[0, :, 0], table.shape[1])
    others = torch.gather(table, 1, chosen[:, None])[:, 0]
    width = min(stage.batch_size, n)
    for start in range(0, n - width + 1, width):
        rows = order[start : start + width]
        yield rows, others[rows]


@torch.no_grad()
def _losses(heads: _Heads, data: Tensor, table: Tensor, entropy_weight: float) -> list[float]:
    """Return the loss of every head over all rows and all their neighbours."""
    found = []
    for weight, bias in zip(heads.weight, heads.bias, strict=True):
        logits = data @ weight.T + bias
        columns = [agreement(logits, logits[column], entropy_weight)[0] for column in table.T]
        found.append(float(torch.stack(columns).double().mean()))
    return found
