"""Many members per launch, each on its own lane.

Guarantee
---------
Every floating-point operation runs on tensors whose shapes follow from the specification: the
stack is always `stack_width` lanes (dummy lanes fill it up), a launch always `tile_rows` rows per
lane (zeros fill it up). No operation reduces over lanes. A lane without rows in a step is frozen.
So a member's bits do not depend on which members share its stack, nor on their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from poisonproof.engines.torch.batches import Step, planned_steps
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.optimizers import LaneOptimizer
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.learners.torch.networks import build, initialise
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["Forward", "Gradients", "autograd_gradients", "stack_scores", "train_stack"]

Forward = Callable[[dict[str, Tensor], Tensor], Tensor]
"""From stacked parameters and inputs (S, B, ...) to scores (S, B, C)."""

Gradients = Callable[
    [dict[str, Tensor], Tensor, Tensor, Tensor, Tensor], tuple[dict[str, Tensor], Tensor]
]
"""From parameters, inputs, targets, rows of each lane, and what means divide by, to gradients
and losses."""


def autograd_gradients(forward: Forward) -> Gradients:
    """Return the gradients of any stacked network, by autograd."""

    def compute(
        parameters: dict[str, Tensor], x: Tensor, targets: Tensor, counts: Tensor, total: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        own = {name: p.detach().requires_grad_(True) for name, p in parameters.items()}
        losses = lane_losses(forward(own, x), targets, counts, total)
        found = torch.autograd.grad(losses.sum(), list(own.values()))
        return dict(zip(own, found, strict=True)), losses.detach()

    return compute


def train_stack(
    spec: TorchSpec,
    members: Sequence[MemberRows],
    seed: int,
    device: torch.device,
    gradients: Gradients,
    initial: dict[str, Tensor] | None = None,
    layout: type[Lanes] = Lanes,
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
    gradients : callable
        Losses of the stacked network, and their gradients.
    initial : dict of tensors of shape (S, ...), optional
        First parameters, where the specification's own rule does not apply.
    layout : type of Lanes
        How rows lie on the device and become batches.
    """
    lanes = layout(spec, members, seed, device)
    parameters = initial if initial is not None else initialise(build(spec), lanes.stream)
    optimizer = LaneOptimizer(spec, parameters)
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    for step in planned_steps(spec, lanes.stream, lanes.sizes):
        found, losses = _tiled(lanes, step, parameters, gradients)
        healthy = healthy & torch.isfinite(losses)
        optimizer.step(found, step.rates, healthy & (step.counts > 0))
    return _states(spec, members, parameters, healthy)


def _tiled(
    lanes: Lanes, step: Step, parameters: dict[str, Tensor], compute: Gradients
) -> tuple[dict[str, Tensor], Tensor]:
    """Return gradients and losses of one step, added up tile by tile.

    How many tiles run follows the fullest lane; a lane adds only those that hold its own rows.
    """
    height = min(lanes.spec.tile_rows, lanes.spec.batch_size)
    gradients: dict[str, Tensor] = {}
    losses = torch.zeros(1)
    whole = None if lanes.pieces_are_free else lanes.batch(step, lanes.spec.batch_size)
    for number, tile in enumerate(step.tiles(height)):
        if whole is None:
            x, targets = lanes.batch(tile, height)
        else:
            start = number * height
            x, targets = (_piece(value, start, height) for value in whole)
        new, part = compute(parameters, x, targets, tile.counts, step.counts)
        if number == 0:
            gradients, losses = new, part
            continue
        # `where`, not a sum with zero: that would turn the sign of a lane's zeros.
        mine = tile.counts > 0
        losses = torch.where(mine, losses + part, losses)
        for name, value in new.items():
            on = mine.view(-1, *(1,) * (value.ndim - 1))
            gradients[name] = torch.where(on, gradients[name] + value, gradients[name])
    return gradients, losses


def _piece(value: Tensor, start: int, height: int) -> Tensor:
    """Return rows of every lane, filled up with zeros to the full height."""
    piece = value[:, start : start + height]
    if piece.shape[1] == height:
        return piece.contiguous()
    full = value.new_zeros(value.shape[0], height, *value.shape[2:])
    full[:, : piece.shape[1]] = piece
    return full


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
        wide = X.expand(spec.stack_width, *X.shape)
        # A user's module may work in place, on samples that the next stack is asked about.
        return forward(parameters, wide.clone() if spec.execution == "vmap" else wide)
    return forward(parameters, (X - mean) / std)
