"""Many members per launch, each on its own lane.

Guarantee
---------
Every floating-point operation runs on tensors whose shapes follow from the specification: the
stack is always `stack_width` lanes (dummy lanes fill it up), a batch always `batch_size` rows
(zeros fill it up). No operation reduces over lanes. A lane without rows in a step is frozen.
So a member's bits do not depend on which members share its stack, nor on their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from poisonproof.engines.torch.batches import member_stream, mixup_weights, n_steps, plan_epoch
from poisonproof.engines.torch.losses import lane_losses, mix, soft_labels
from poisonproof.engines.torch.optimizers import LaneOptimizer
from poisonproof.engines.torch.rows import MemberRows, dummy_rows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.learners.torch.augmentation import augment
from poisonproof.learners.torch.networks import build, initialise
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Stream

__all__ = ["Forward", "perceptron_forward", "stack_scores", "train_stack"]

Forward = Callable[[dict[str, Tensor], Tensor], Tensor]
"""From stacked parameters and inputs (S, B, ...) to scores (S, B, C)."""


def perceptron_forward(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Apply S linear networks or perceptrons to S batches."""
    x = x.flatten(2)
    names = sorted({int(name.split(".")[0]) for name in parameters})
    for name in names:
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        x = torch.baddbmm(bias[:, None, :], x, weight.transpose(1, 2))
        if name != names[-1]:
            x = torch.relu(x)
    return x


class _Lanes:
    """The data of one stack on the device."""

    def __init__(
        self, spec: TorchSpec, members: Sequence[MemberRows], seed: int, device: torch.device
    ) -> None:
        self.spec, self.device = spec, device
        spare = spec.stack_width - len(members)
        lanes = [*members, *[dummy_rows(spec)] * spare]
        self.lanes = lanes
        self.sizes = torch.tensor([len(lane) for lane in lanes], device=device)
        # Members are gathered from one flat table: a gather moves bits and computes none.
        blank = torch.zeros(1, *spec.input_shape)
        self.X = torch.cat([blank, *(lane.X for lane in lanes)]).to(device)
        self.y = torch.cat([torch.zeros(1, dtype=torch.int64), *(lane.y for lane in lanes)]).to(
            device
        )
        self.starts = torch.cumsum(self.sizes, 0) - self.sizes + 1
        self.mean = torch.stack([lane.mean for lane in lanes]).to(device)[:, None]
        self.std = torch.stack([lane.std for lane in lanes]).to(device)[:, None]
        self.stream: Stream = member_stream(spec, seed, [lane.index for lane in lanes], device)

    def batch(self, rows: Tensor, counts: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Return inputs (S, B, ...) and label distributions (S, B, C) of one step."""
        real = torch.arange(rows.shape[1], device=self.device) < counts[:, None]
        place = torch.where(real, rows + self.starts[:, None], 0)
        x = self.X[place]
        if not self.spec.augmentation.is_identity:
            x = augment(x, self.spec.augmentation, self.stream, epoch, rows)
        x = (x - self.mean) / self.std
        x = torch.where(real.view(*real.shape, *(1,) * (x.ndim - 2)), x, 0.0)
        return x, soft_labels(self.y[place], self.spec)


def train_stack(
    spec: TorchSpec,
    members: Sequence[MemberRows],
    seed: int,
    device: torch.device,
    forward: Forward,
    initial: dict[str, Tensor] | None = None,
) -> list[MemberState]:
    """Train at most `stack_width` members side by side.

    Parameters
    ----------
    spec : TorchSpec
        The law of the members.
    members : sequence of MemberRows
        Non-empty partitions.
    seed : int
        Seed of the ensemble.
    device : torch.device
        Where to compute.
    forward : callable
        The stacked network.
    initial : dict of tensors of shape (S, ...), optional
        First parameters, where the specification's own rule does not apply.
    """
    lanes = _Lanes(spec, members, seed, device)
    parameters = initial if initial is not None else initialise(build(spec), lanes.stream)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    optimizer = LaneOptimizer(spec, parameters)
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    lane_steps = [max(1, n_steps(len(lane), spec)) for lane in lanes.lanes]
    for epoch in range(spec.epochs):
        plan = plan_epoch(spec, lanes.stream, lanes.sizes, epoch)
        steps = plan.rows.shape[1]
        shares = mixup_weights(spec, lanes.stream, epoch, steps) if spec.mixup else None
        for step in range(steps):
            counts = plan.counts[:, step]
            x, targets = lanes.batch(plan.rows[:, step], counts, epoch)
            if shares is not None:
                x, targets = (mix(v, shares[:, step], counts) for v in (x, targets))
            losses = lane_losses(forward(parameters, x), targets, counts)
            gradients = torch.autograd.grad(losses.sum(), list(parameters.values()))
            rates = [spec.rate(epoch, step, own) for own in lane_steps]
            healthy = healthy & torch.isfinite(losses)
            optimizer.step(
                dict(zip(parameters, gradients, strict=True)),
                torch.tensor(rates, dtype=torch.float32, device=device),
                healthy & (counts > 0),
            )
    return _states(spec, members, parameters, healthy)


def _states(
    spec: TorchSpec,
    members: Sequence[MemberRows],
    parameters: dict[str, Tensor],
    healthy: Tensor,
) -> list[MemberState]:
    host = {name: p.detach().cpu().numpy() for name, p in parameters.items()}
    keep_last = spec.on_nan == "last_finite"
    fine = healthy.cpu().numpy()
    return [
        finished(
            rows.index,
            {
                **{name: np.array(array[lane]) for name, array in host.items()},
                "normalise.mean": rows.mean.numpy(),
                "normalise.std": rows.std.numpy(),
            },
            diverged=not (fine[lane] or keep_last),
        )
        for lane, rows in enumerate(members)
    ]


@torch.no_grad()
def stack_scores(
    spec: TorchSpec,
    tensors: dict[str, Tensor],
    X: Tensor,
    forward: Forward,
) -> Tensor:
    """Return the scores of one full stack on one block of samples, shape (S, n, C).

    Parameters
    ----------
    spec : TorchSpec
        The law of the members.
    tensors : dict of tensors of shape (S, ...)
        Weights and normalisation of `stack_width` lanes.
    X : float32 tensor of shape (n, ...)
        Exactly `vote_rows` samples.
    forward : callable
        The stacked network.
    """
    parameters = {k: v for k, v in tensors.items() if not k.startswith("normalise.")}
    mean, std = tensors["normalise.mean"][:, None], tensors["normalise.std"][:, None]
    if spec.normalize == "none":
        return forward(parameters, X.expand(spec.stack_width, *X.shape))
    return forward(parameters, (X - mean) / std)
