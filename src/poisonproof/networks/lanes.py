"""Many members per launch, each on its own lane: linear networks and perceptrons.

Hand-written because `torch.func.vmap` replaces operations by rules of its own, which do not promise
to keep lanes apart or shapes fixed.

Guarantee
---------
Every floating-point operation runs on tensors whose shapes follow from the specification: the
stack is always `stack_width` lanes (dummy lanes fill it up), a launch always `tile_rows` rows per
lane (zeros fill it up). No operation reduces over lanes. A lane without rows in a step is frozen.
So a member's bits do not depend on which members share its stack, nor on their sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from poisonproof.networks.batches import (
    Lanes,
    MemberState,
    MemberTensors,
    TrainingStep,
    members_of,
    planned_steps,
)
from poisonproof.networks.modules import build, initialise
from poisonproof.networks.specification import NetworkSpec

Layer = tuple[str, Tensor, Tensor]


def _layers(parameters: dict[str, Tensor]) -> list[Layer]:
    numbers = sorted({int(name.split(".")[0]) for name in parameters})
    return [(f"{n}", parameters[f"{n}.weight"], parameters[f"{n}.bias"]) for n in numbers]


def _hidden(layers: list[Layer], x: Tensor) -> list[Tensor]:
    """Return the input of every layer, each of shape (S, B, width)."""
    inputs = [x.flatten(2)]
    for _, weight, bias in layers[:-1]:
        product = torch.baddbmm(bias[:, None, :], inputs[-1], weight.transpose(1, 2))
        inputs.append(product.relu_())  # the product's own memory; nothing else reads it
    return inputs


@torch.no_grad()
def perceptron_gradients(
    parameters: dict[str, Tensor], x: Tensor, targets: Tensor, counts: Tensor, total: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return gradients and losses of S lanes; rows behind a lane's count weigh nothing.

    Autograd would compute the same products, but softmax over a last axis of ten classes costs more
    than they do: here classes come before rows, so that the CPU's vectors run along rows.
    """
    layers = _layers(parameters)
    inputs = _hidden(layers, x)
    _, weight, bias = layers[-1]
    scores = torch.baddbmm(bias[:, :, None], weight, inputs[-1].transpose(1, 2))
    wanted = targets.transpose(1, 2)
    real = (torch.arange(x.shape[1], device=x.device) < counts[:, None])[:, None, :]
    rows = total.clamp(min=1).to(scores.dtype)
    per_row = -(torch.log_softmax(scores, dim=1) * wanted).sum(dim=1)
    # `where`, not a product: zero times an infinite padding loss would be NaN.
    losses = torch.where(real[:, 0], per_row, 0.0).sum(dim=1) / rows
    slope = torch.where(real, torch.softmax(scores, dim=1).sub_(wanted), 0.0).div_(
        rows[:, None, None]
    )
    found: dict[str, Tensor] = {}
    for number in reversed(range(len(layers))):
        name, weight, _ = layers[number]
        found[f"{name}.weight"] = torch.bmm(slope, inputs[number])
        found[f"{name}.bias"] = slope.sum(dim=2)
        if number:
            before = torch.bmm(slope.transpose(1, 2), weight)
            # The rectifier lets nothing through where its output is zero.
            through: Tensor = torch.ops.aten.threshold_backward(before, inputs[number], 0)
            slope = through.transpose(1, 2)
    return found, losses


class LaneOptimizer:
    """SGD on parameters (S, ...), with a learning rate and an on-switch per lane.

    No quantity is shared by two lanes: no clipping over the stack, no common loss scale. The rules
    of `graphs` round differently, so they would train other members.
    """

    def __init__(self, spec: NetworkSpec, parameters: dict[str, Tensor]) -> None:
        self.spec, self.parameters = spec, parameters
        self.velocity = {name: torch.zeros_like(p) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor], rates: Tensor, active: Tensor) -> None:
        """Move the active lanes; others keep parameters and momentum. Gradients are overwritten."""
        spec, state = self.spec, [*self.parameters.values(), *self.velocity.values()]
        # Asking a CUDA device would wait for it; a CPU knows at once that no lane has to wait.
        everyone = active.device.type == "cpu" and bool(active.all())
        before = [] if everyone else [tensor.clone() for tensor in state]
        for name, gradient in gradients.items():
            parameter, velocity = self.parameters[name], self.velocity[name]
            rate = rates.view(-1, *(1,) * (gradient.ndim - 1))
            if spec.weight_decay:
                gradient.add_(parameter, alpha=spec.weight_decay)
            velocity.mul_(spec.momentum).add_(gradient)
            if spec.nesterov:
                ahead = gradient.add_(velocity * spec.momentum).mul_(rate)
            else:
                ahead = torch.mul(velocity, rate, out=gradient)
            parameter.sub_(ahead)
        for tensor, old in zip(state, before, strict=not everyone):
            on = active.view(-1, *(1,) * (tensor.ndim - 1))
            tensor.copy_(torch.where(on, tensor, old))


def train_stack(
    spec: NetworkSpec,
    members: Sequence[MemberTensors],
    seed: int,
    device: torch.device,
    layout: type[Lanes] = Lanes,
) -> list[MemberState]:
    """Train at most `stack_width` members with rows side by side."""
    lanes = layout(spec, members, seed, device)
    parameters = initialise(build(spec), lanes.stream)
    optimizer = LaneOptimizer(spec, parameters)
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    for step in planned_steps(spec, lanes.stream, lanes.sizes):
        found, losses = _tiled(lanes, step, parameters)
        healthy = healthy & torch.isfinite(losses)
        optimizer.step(found, step.rates, healthy & (step.counts > 0))
    host = {name: p.detach().cpu().numpy() for name, p in parameters.items()}
    return members_of(members, host, healthy.cpu().numpy())


def _tiled(
    lanes: Lanes, step: TrainingStep, parameters: dict[str, Tensor]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return gradients and losses of one step; a lane adds up the tiles that hold its own rows."""
    height = min(lanes.spec.tile_rows, lanes.spec.batch_size)
    gradients: dict[str, Tensor] = {}
    losses = torch.zeros(1)
    whole = None if lanes.pieces_are_free else lanes.batch(step, lanes.spec.batch_size)
    for number, tile in enumerate(step.tiles(height)):
        if whole is None:
            x, targets = lanes.batch(tile, height)
        else:
            x, targets = (_piece(value, number * height, height) for value in whole)
        new, part = perceptron_gradients(parameters, x, targets, tile.counts, step.counts)
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
    spare = (0, 0) * (value.ndim - 2) + (0, height - piece.shape[1])
    return torch.nn.functional.pad(piece, spare).contiguous()


@torch.no_grad()
def stack_scores(spec: NetworkSpec, tensors: dict[str, Tensor], X: Tensor) -> Tensor:
    """Return the scores of a full stack on exactly `vote_rows` samples, shape (S, n, C)."""
    layers = _layers({k: v for k, v in tensors.items() if not k.startswith("normalise.")})
    if spec.normalize == "none":
        x = X.expand(spec.stack_width, *X.shape)
    else:
        x = (X - tensors["normalise.mean"][:, None]) / tensors["normalise.std"][:, None]
    _, weight, bias = layers[-1]
    return torch.baddbmm(bias[:, None, :], _hidden(layers, x)[-1], weight.transpose(1, 2))
