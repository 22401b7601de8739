"""Losses, views and stages that refine clusters without labels (Van Gansbeke et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.features.exact import exact_rows
from poisonproof.members.clusters import leading_vectors, read_clusters
from poisonproof.members.similarity import nearest_rows, neighbor_graph
from poisonproof.networks.augmentation import Purpose, Stream, below, uniform
from poisonproof.networks.graphs import FlatModule, PretrainSGD
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.tasks import SimCLR, channels_last, pixel_centres
from poisonproof_research.networks.refine_spec import RefineSpec

_FEW = 0.25
"""A cluster that is sure of less than this share of its images is sure of few."""
_LEAST = 1e-8
"""Smallest probability whose logarithm is taken."""


def agreement(first: Tensor, second: Tensor, entropy_weight: float) -> tuple[Tensor, Tensor]:
    """Return how little pairs agree, less the weighted entropy of sizes, and the share that agrees.

    Logits have the shape (..., n, K).

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


# The nearest other images of every image, by the cosine of their features.


def neighbour_table(vectors: NDArray[Any], count: int, device: str) -> NDArray[np.int64]:
    """Return the `count` nearest other rows of every row, nearest first.

    Features are rounded row by row, so that cosines are alike on every device.

    Examples
    --------
    >>> neighbour_table(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1, "cpu").ravel()
    array([1, 0, 1])
    """
    rows = exact_rows(vectors, "single")
    count = min(count, len(rows) - 1)
    found = nearest_rows(rows, rows, count + 1, None if device == "cpu" else device)
    return _without_itself(found)


def _without_itself(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop every row from its own list; where repeats of it crowd it out, drop the last instead."""
    itself = found == np.arange(len(found))[:, None]
    itself[~itself.any(axis=1), -1] = True
    others: NDArray[np.int64] = found[~itself].reshape(len(found), -1)
    return others


# Linear heads on frozen features, from several starts; the one with the least loss is kept.

_FADING = 0.999
"""beta2 of Adam."""
_SMALLEST = 1e-8
"""Added to Adam's root mean square."""
PICK = 10
"""Address of the draw of a neighbour."""
_STEEPEST = 2.0
"""Largest root mean square of logits that training starts from. Steeper heads are as good as sure
of everything: where they err the loss explodes, elsewhere no gradient is left."""
_RIDGE = 1e-3
"""Added to the within-cluster covariance, in parts of its mean diagonal."""


class PretrainAdam(PretrainSGD):
    """Steps of Adam (Kingma and Ba, 2015), which do not depend on scales.

    Means are kept without correction; `step_size` corrects for their start at zero, so that
    nothing on the device counts steps.
    """

    def __init__(self, spec: PretrainSpec, parameters: Tensor) -> None:
        self.spec: PretrainSpec = spec
        self.state = [torch.zeros(2, len(parameters), device=parameters.device)]

    def step_size(self, rate: float, done: int) -> float:
        """Return the rate, corrected for both means' start at zero."""
        count = done + 1
        return rate * math.sqrt(1.0 - _FADING**count) / (1.0 - self.spec.momentum**count)

    def step(self, parameters: Tensor, gradients: Tensor, rate: Tensor) -> None:
        """Take one step, with a rate that lies on the device.

        Decay shrinks weights by itself (Loshchilov and Hutter, 2019): as a part of the gradient it
        would be all that is left where the loss is flat, and take full steps towards zero.
        """
        mean, square = self.state[0]
        mean.lerp_(gradients, 1.0 - self.spec.momentum)
        square.mul_(_FADING).addcmul_(gradients, gradients, value=1.0 - _FADING)
        step = mean / square.sqrt().add_(_SMALLEST)
        parameters.addcmul_(step.add_(parameters, alpha=self.spec.weight_decay), rate, value=-1.0)


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
    """Train heads that give neighbours the same cluster, and keep the best by that loss."""
    first = spectral_start(neighbours[:, : spec.graph_neighbors], spec.n_clusters)
    device = torch.device(network.device)
    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).mean())) or 1.0
    scaled = ((vectors - centre) / scale).astype(np.float32)
    lanes = torch.arange(1 + spec.random_starts, device=device)
    start = limited(scaled, *discriminant(scaled, first, spec.n_clusters))
    heads = _Heads(start, Stream(spec.seed, lanes))
    heads.to(device)
    data = torch.from_numpy(scaled).to(device)
    table = torch.from_numpy(neighbours[:, : spec.n_neighbors]).to(device)
    _train(heads, data, table, spec, spec.stage(network, "head"))
    losses = _losses(heads, data, table, spec.entropy_weight)
    best = int(np.argmin(losses))
    found = (heads.weight[best], heads.bias[best, 0])
    weight, bias = (value.detach().cpu().numpy().astype(np.float64) for value in found)
    weight, bias = limited(scaled, weight, bias)
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


def limited(
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
    flat = FlatModule(heads, alignment=1)
    rule = PretrainAdam(stage, flat.parameters)
    steps = max(1, len(data) // stage.batch_size)
    for epoch in range(stage.epochs):
        planned = [
            rule.step_size(stage.rate(epoch, step, steps), epoch * steps + step)
            for step in range(steps)
        ]
        rates = torch.tensor(planned, device=data.device)
        for rate, (rows, others) in zip(rates, _pairs(table, spec, stage, epoch), strict=True):
            loss, _ = agreement(heads(data[rows]), heads(data[others]), spec.entropy_weight)
            flat.collect(loss.sum())
            with torch.no_grad():
                rule.step(flat.parameters, flat.gradients, rate)


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


# Strong views of images, on the device: turned, sheared, shifted, in other tones, a part hidden.
#
# The changes are those of RandAugment (Cubuk et al., 2020) as used for self-labelling, without
# equalisation. There, four of fourteen are drawn and applied in turn; here each takes part with the
# same chance, in a fixed order, so that all of geometry is one resampling.

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
    """Return one strong view of every uint8 image (n, C, H, W), pixels between 0 and 1."""
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


# The two stages that refine clusters: network and loss, for the common training loop.


class Clusters(SimCLR):
    """The network that learned the features, with a linear head that names clusters.

    Parameters
    ----------
    spec : PretrainSpec
        The loop, with the network's width.
    refinement : RefineSpec
        The clusters.
    """

    def __init__(self, spec: PretrainSpec, refinement: RefineSpec) -> None:
        super().__init__(spec)
        self.refinement = refinement
        self.head = nn.Sequential(nn.Linear(8 * spec.width, refinement.n_clusters))
        self.module = nn.ModuleDict({"encoder": self.encoder, "head": self.head})

    def features(self, x: Tensor) -> Tensor:
        """Return features and logits side by side, shape (n, 8 * width + K), in float32."""
        self.module.eval()
        vectors = self._vectors(x)
        return torch.cat([vectors, self.head(vectors)], dim=1)

    def logits(self, x: Tensor) -> Tensor:
        """Return logits of normalised images, by the statistics of the batch."""
        self.module.train()
        out: Tensor = self.head(self._vectors(x))
        return out

    def _vectors(self, x: Tensor) -> Tensor:
        with self._products():
            out: Tensor = self.encoder(channels_last(x))
        return out.float()

    def strong(self, images: Tensor, draw: dict[int, Tensor], number: int) -> Tensor:
        """Return strong views, normalised."""
        words = tuple(draw[purpose] for purpose in STRONG[number])
        return self.pixels.normalised(255.0 * strong_views(images, self.spec.flip, words))


class NeighbourAgreement(Clusters):
    """An image and one of its neighbours, both in strong views, shall share a cluster.

    Parameters
    ----------
    spec, refinement
        See `Clusters`.
    neighbours : int64 tensor of shape (n, N)
        Rows of the nearest images of every image, on the device.
    """

    purposes: tuple[int, ...] = (PICK, *STRONG[0], *STRONG[1])
    metric = "pairs alike"
    rule = PretrainAdam

    def __init__(self, spec: PretrainSpec, refinement: RefineSpec, neighbours: Tensor) -> None:
        super().__init__(spec, refinement)
        self.neighbours = neighbours

    def batch(self, images: Tensor, rows: Tensor, draw: dict[int, Tensor]) -> Tensor:
        """Return the images of these rows, then a neighbour of each."""
        chosen = below(draw[PICK][:, 0], self.neighbours.shape[1])
        others = torch.gather(self.neighbours[rows], 1, chosen[:, None])[:, 0]
        return images[torch.cat([rows, others])]

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return `agreement` of images and neighbours, and the share of pairs alike."""
        first, second = images.chunk(2)
        views = torch.cat([self.strong(first, draw, 0), self.strong(second, draw, 1)])
        mine, theirs = self.logits(views).chunk(2)
        return agreement(mine, theirs, self.refinement.entropy_weight)


class SelfLabels(Clusters):
    """An image whose cluster is sure teaches it to a strong view of itself.

    What an image teaches is the cluster the finished network would give it: running statistics
    are those of strong views before and after, and the teacher uses them, too.
    """

    purposes: tuple[int, ...] = STRONG[0]
    metric = "images sure"
    rule = PretrainAdam

    def loss(self, images: Tensor, draw: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Return `self_labels` of the batch, and the share of sure images."""
        with torch.no_grad():
            whole = self.features(self.pixels.normalised(images.float()))
        strong = self.logits(self.strong(images, draw, 0))
        weak = whole[:, -self.refinement.n_clusters :]
        return self_labels(
            weak, strong, self.refinement.confidence, self.refinement.label_entropy_weight
        )
