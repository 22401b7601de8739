"""Members that are the rest of a network on a frozen first part: tails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks.augmentation import Purpose, Stream, uniform
from poisonproof.networks.batches import (
    Lanes,
    MemberState,
    MemberTensors,
    TrainingStep,
    finished,
    lane_losses,
    planned_steps,
)
from poisonproof.networks.device import deterministic
from poisonproof.networks.ensemble import Block
from poisonproof.networks.lanes import LaneOptimizer
from poisonproof.networks.learner import TorchLearner
from poisonproof.networks.modules import initialise
from poisonproof.networks.pretraining.frozen import FrozenNetwork
from poisonproof_research.networks.on_frozen import OnFrozenEnsemble, OnFrozenLearner, OnFrozenSpec

FIRST_WEIGHTS = ("uniform", "normal")


@dataclass(frozen=True)
class TailSpec(OnFrozenSpec):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule, features_sha256
        As in `OnFrozenSpec`.
    lane_rows : int
        Rows per member and launch; no batch may have more.
    first_weights : {"uniform", "normal"}
        Within +-1/sqrt(fan-in), or normal with variance 2/fan-out and no bias.
    """

    network: ClassVar[str] = "nin-tail"

    lane_rows: int
    first_weights: str = "uniform"

    def __post_init__(self) -> None:
        if not 1 <= self.lane_rows <= self.schedule.batch_size:
            raise InvalidInputError(
                f"lane_rows must be between 1 and batch_size={self.schedule.batch_size}, got"
                f" {self.lane_rows}."
            )
        if self.first_weights not in FIRST_WEIGHTS:
            raise InvalidInputError(
                f"first_weights must be one of {', '.join(FIRST_WEIGHTS)}, got"
                f" {self.first_weights!r}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values, without a choice that older results lack."""
        values = {**super().to_json(), "lane_rows": self.lane_rows}
        if self.first_weights != "uniform":
            values["first_weights"] = self.first_weights
        return values


# The third block of Network in Network and its last layer, for many members at once.
#
# A convolution is a matrix product of the windows of all pixels with the kernels, so a stack of
# members is one batched product. Batch norm looks at the real rows of its own member alone.

_EPSILON = 1e-5
_MOMENTUM = 0.1


def third_block(channels: int = 192, n_classes: int = 10) -> nn.Sequential:
    """Return a fresh third block and linear layer as an ordinary module.

    Examples
    --------
    >>> third_block()(torch.zeros(2, 192, 7, 7)).shape
    torch.Size([2, 10])
    """
    layers: list[nn.Module] = []
    for side in (3, 1, 1):
        layers += [
            nn.Conv2d(channels, 192, side, padding=side // 2, bias=False),
            nn.BatchNorm2d(192),
            nn.ReLU(),
        ]
        channels = 192
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes)
    )


def normal_weights(module: nn.Module, stream: Stream) -> dict[str, Tensor]:
    """Draw first weights from a normal distribution of variance 2 / fan-out; biases are zero.

    This is the published rule for classifiers on RotNet's features (Gidaris et al., 2018).
    """
    state = initialise(module, stream)
    for number, (name, value) in enumerate(state.items()):
        if name.endswith(".bias"):
            state[name] = torch.zeros_like(value)
        elif value.ndim > 2:
            count = value[0].numel()
            words = stream.values(Purpose.INITIAL + number, 2 * count)
            first, second = uniform(words).view(len(value), 2, count).unbind(dim=1)
            # Box and Muller; half a step keeps the logarithm finite.
            normal = torch.sqrt(-2.0 * torch.log(first + 2.0**-25)) * torch.cos(math.tau * second)
            fan_out = count // value.shape[2]
            state[name] = (normal * math.sqrt(2.0 / fan_out)).view(value.shape)
    return state


def windows(x: Tensor) -> Tensor:
    """Lay out 3x3 windows of maps (n, C, H, W) as (n, H * W, 9 * C), zeros beyond the border."""
    height, width = x.shape[2:]
    padded = functional.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    parts = [padded[:, dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3)]
    return torch.cat(parts, dim=-1).flatten(1, 2)


class Tail:
    """The stacked form of `third_block`.

    Parameters
    ----------
    state : dict of tensors of shape (S, ...)
        Parameters and running statistics under the names of the module.
    dtype : torch.dtype
        Of products.
    """

    def __init__(self, state: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.state, self.dtype = state, dtype

    @staticmethod
    def parameter_names(state: dict[str, Tensor]) -> list[str]:
        """Return the names that are trained."""
        return [name for name in state if name.endswith((".weight", ".bias"))]

    def train_scores(self, columns: Tensor, counts: Tensor, active: Tensor) -> Tensor:
        """Return scores (S, B, C) of windows (S, B, P, 9 C); active lanes move their statistics."""
        lanes, rows, pixels = columns.shape[:3]
        real = torch.arange(rows, device=columns.device) < counts[:, None]
        mask = real[:, :, None].expand(-1, -1, pixels).reshape(lanes, rows * pixels, 1)
        n = (counts * pixels).clamp(min=1).view(-1, 1, 1).float()
        x = columns.flatten(1, 2)
        for unit in range(3):
            z = torch.bmm(x.to(self.dtype), self._kernel(unit)).float()
            x = self._norm(unit, z, mask, n, active).relu()
        pooled = x.view(lanes, rows, pixels, -1).mean(dim=2)
        return self._head(pooled)

    def vote_scores(self, columns: Tensor) -> Tensor:
        """Return the scores (S, n, C) of all lanes on the same windows (n, P, 9 C)."""
        rows, pixels = columns.shape[:2]
        kernels = self._kernel(0)
        lanes = len(kernels)
        x = columns.flatten(0, 1).to(self.dtype).expand(lanes, -1, -1)
        for unit in range(3):
            z = torch.bmm(x, self._kernel(unit)).float()
            mean, var = (self._row(unit, f"running_{name}") for name in ("mean", "var"))
            scale = self._row(unit, "weight") * torch.rsqrt(var + _EPSILON)
            x = torch.addcmul(self._row(unit, "bias") - mean * scale, z, scale).relu_()
            x = x.to(self.dtype) if unit < 2 else x
        return self._head(x.view(lanes, rows, pixels, -1).mean(dim=2))

    def _kernel(self, unit: int) -> Tensor:
        weight = self.state[f"{3 * unit}.weight"]
        return weight.permute(0, 3, 4, 2, 1).flatten(1, 3).to(self.dtype)

    def _row(self, unit: int, name: str) -> Tensor:
        return self.state[f"{3 * unit + 1}.{name}"][:, None]

    def _norm(self, unit: int, z: Tensor, mask: Tensor, n: Tensor, active: Tensor) -> Tensor:
        mean = torch.where(mask, z, 0.0).sum(dim=1, keepdim=True) / n
        centred = torch.where(mask, z - mean, 0.0)
        var = (centred * centred).sum(dim=1, keepdim=True) / n
        with torch.no_grad():
            unbiased = var * (n / (n - 1).clamp(min=1))
            for name, value in (("mean", mean), ("var", unbiased)):
                old = self.state[f"{3 * unit + 1}.running_{name}"]
                new = old + _MOMENTUM * (value[:, 0] - old)
                old.copy_(torch.where(active[:, None], new, old))
        scaled = centred * torch.rsqrt(var + _EPSILON)
        return scaled * self._row(unit, "weight") + self._row(unit, "bias")

    def _head(self, pooled: Tensor) -> Tensor:
        weight, bias = self.state["11.weight"], self.state["11.bias"]
        return torch.baddbmm(bias[:, None], pooled, weight.transpose(1, 2))


# Stacks of members on frozen features, from first weights to finished members.


def check_sizes(spec: TailSpec, members: Sequence[MemberTensors]) -> None:
    """Raise if a batch of some member does not fit into its lane."""
    for rows in members:
        if min(len(rows), spec.schedule.batch_size) > spec.lane_rows:
            raise InvalidInputError(
                f"Partition {rows.index} has {len(rows)} rows, but lane_rows={spec.lane_rows}."
                " Raise lane_rows (up to batch_size)."
            )


def train_stack(
    spec: TailSpec,
    frozen: FrozenNetwork,
    members: Sequence[MemberTensors],
    seed: int,
    device: torch.device,
) -> list[MemberState]:
    """Train at most `stack_width` members side by side; lanes without one stay still.

    Augmentation changes images, so the frozen part runs at every step, on all lanes at once.
    """
    lanes = Lanes(spec.schedule, members, seed, device)
    draw = initialise if spec.first_weights == "uniform" else normal_weights
    state = draw(third_block(n_classes=spec.n_classes), lanes.stream)
    state = {k: v.contiguous() for k, v in state.items() if not k.endswith("num_batches_tracked")}
    names = Tail.parameter_names(state)
    for name in names:
        state[name].requires_grad_(True)
    optimizer = LaneOptimizer(spec.schedule, {name: state[name] for name in names})
    tail = Tail(state, getattr(torch, spec.schedule.dtype))
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    for step in planned_steps(spec.schedule, lanes.stream, lanes.sizes):
        columns, targets = _batch(spec, frozen, lanes, step)
        active = healthy & (step.counts > 0)
        scores = tail.train_scores(columns, step.counts, active)
        losses = lane_losses(scores, targets, step.counts)
        found = torch.autograd.grad(losses.sum(), [state[name] for name in names])
        healthy = healthy & torch.isfinite(losses.detach())
        optimizer.step(dict(zip(names, found, strict=True)), step.rates, healthy & active)
    return _finished(members, state, healthy)


def _batch(
    spec: TailSpec, frozen: FrozenNetwork, lanes: Lanes, step: TrainingStep
) -> tuple[Tensor, Tensor]:
    """Return the windows of every lane's rows, shape (S, B, P, 9 C), and label distributions."""
    images, targets = lanes.raw(step, spec.lane_rows)
    features = frozen.rows(images.flatten(0, 1))
    columns = windows(features)
    return columns.view(*images.shape[:2], *columns.shape[1:]), targets


def _finished(
    members: Sequence[MemberTensors], state: dict[str, Tensor], healthy: Tensor
) -> list[MemberState]:
    host = {name: value.detach().cpu().numpy() for name, value in state.items()}
    fine = healthy.cpu().numpy()
    return [
        finished(
            rows.index,
            {name: np.array(array[lane]) for name, array in host.items()},
            diverged=not fine[lane],
        )
        for lane, rows in enumerate(members)
    ]


@torch.no_grad()
def ask_stack(
    spec: TailSpec, members: Sequence[MemberState], features: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """Yield scores of up to `stack_width` members, some samples at a time: (rows, (S, n, C))."""
    filled = [*members, *[members[0]] * (spec.stack_width - len(members))]
    state = {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in filled]))
        for name in members[0].tensors
    }
    state = {name: value.to(features.device) for name, value in state.items()}
    tail = Tail(state, getattr(torch, spec.schedule.dtype))
    size = spec.schedule.vote_rows
    for start in range(0, len(features), size):
        rows = slice(start, min(start + size, len(features)))
        part = features[rows]
        if len(part) < size:
            filled_up = features.new_zeros(size, *features.shape[1:])
            filled_up[: len(part)] = part
            part = filled_up
        scores = tail.vote_scores(windows(part))
        yield rows, scores[: len(members), : rows.stop - start]


# The fitted members that are the rest of a network on its frozen first part.


class TailEnsemble(OnFrozenEnsemble):
    """Members of a `TailSpec`; see `OnFrozenEnsemble`."""

    family: ClassVar[str] = "tail"
    spec: TailSpec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        voters = [place for place, member in enumerate(self.members) if not member.abstains]
        width = self.spec.stack_width
        with deterministic(self.schedule):
            features = self._features(samples)
            for start in range(0, len(voters), width):
                places = voters[start : start + width]
                group = [self.members[place] for place in places]
                for rows, scores in ask_stack(self.spec, group, features):
                    yield places, rows, scores


# `TailLearner`: members that share a frozen first part, behind the scikit-learn contract.


class TailLearner(OnFrozenLearner[TailSpec, TailEnsemble]):
    """The third block of Network in Network on the frozen first two, many members at once.

    Use it as ``SSDPAClassifier(TailLearner(features, ...), n_partitions=1200)``.

    Parameters
    ----------
    features : FrozenNetwork
        Learned by RotNet, from samples alone.
    epochs, batch_size, learning_rate, momentum, nesterov, weight_decay, milestones, gamma
        Training; by default as published for MNIST.
    augmentation : None, str, dict or Augmentation
        Changes of images before the frozen part.
    seed_rule : {"partition", "shared"}
        Whether members draw from streams of their own.
    stack_width, lane_rows : int
        Members per launch, and rows per member in it; None takes `batch_size`.
    vote_rows : int
        Samples per launch when voting.
    dtype : {None, "float32", "bfloat16"}
        None takes that of the features.
    first_weights : {"uniform", "normal"}
        Within +-1/sqrt(fan-in), or normal with variance 2/fan-out and no bias, as published;
        members with few rows do better with the first, whose last layer begins small.

    Guarantee
    ---------
    A member is a function of its partition, the label set, the seed and the features, given the
    specification and the machine. Labels of other partitions do not reach it.

    Assumes
    -------
    Samples are trusted: the features have seen them all.
    """

    ensemble_type: ClassVar[type[OnFrozenEnsemble]] = TailEnsemble

    def __init__(
        self,
        features: FrozenNetwork,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        nesterov: bool = True,
        weight_decay: float = 5e-4,
        milestones: tuple[int, ...] = (36, 71, 86),
        gamma: float = 0.2,
        augmentation: Any = "crop",
        seed_rule: str = "partition",
        stack_width: int = 32,
        lane_rows: int | None = None,
        vote_rows: int = 128,
        dtype: str | None = None,
        first_weights: str = "uniform",
    ) -> None:
        self.features = features
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.milestones = milestones
        self.gamma = gamma
        self.augmentation = augmentation
        self.seed_rule = seed_rule
        self.stack_width = stack_width
        self.lane_rows = lane_rows
        self.vote_rows = vote_rows
        self.dtype = dtype
        self.first_weights = first_weights

    def resolve(self, shape: tuple[int, ...], n_classes: int) -> TailSpec:
        """Return the full specification for samples of one shape and a label set's size."""
        params = self.get_params(deep=False)
        frozen, lane_rows = params.pop("features"), params.pop("lane_rows")
        first = params.pop("first_weights")
        params["dtype"] = params["dtype"] or frozen.spec.dtype
        if frozen.spec.device == "cpu":
            # What lies behind the last whole vector of a tensor, torch may round differently. A
            # stack of so many lanes has nothing there, whatever the shapes.
            params["stack_width"] = -(-self.stack_width // 64) * 64
        deep = TorchLearner(
            "linear",  # any network that is stacked: the tail is built here
            **params,
            normalize="none",
            device=frozen.spec.device,
            threads=frozen.spec.threads,
        )
        schedule = deep.resolve(shape, n_classes)
        return TailSpec(schedule, frozen.digest(), lane_rows or self.batch_size, first)

    def _train(
        self, spec: TailSpec, group: list[MemberTensors], seed: int, device: torch.device
    ) -> list[MemberState]:
        check_sizes(spec, group)
        return train_stack(spec, self.features, group, seed, device)
