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

from poisonproof.engines.torch.batches import planned_steps
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.optimizers import LaneOptimizer
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.learners.torch.networks import build, initialise
from poisonproof.learners.torch.specification import TorchSpec

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
    lanes = Lanes(spec, members, seed, device)
    parameters = initial if initial is not None else initialise(build(spec), lanes.stream)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    optimizer = LaneOptimizer(spec, parameters)
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    for step in planned_steps(spec, lanes.stream, lanes.sizes):
        x, targets = lanes.batch(step, spec.batch_size)
        losses = lane_losses(forward(parameters, x), targets, step.counts)
        gradients = torch.autograd.grad(losses.sum(), list(parameters.values()))
        healthy = healthy & torch.isfinite(losses)
        optimizer.step(
            dict(zip(parameters, gradients, strict=True)), step.rates, healthy & (step.counts > 0)
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
