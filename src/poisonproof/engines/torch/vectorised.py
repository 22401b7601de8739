"""A user's module for many members at once, through `torch.func`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from poisonproof.engines.torch.batches import member_stream
from poisonproof.engines.torch.own_modules import (
    blank_module,
    changed_names,
    draws,
    kept_values,
    own_streams,
    seed_streams,
)
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.stacked import Forward
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.networks import build
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["first_parameters", "module_forward"]


def module_forward(spec: TorchSpec, device: torch.device, *, training: bool) -> Forward:
    """Return the stacked form of a user's module, or say why it has none."""
    module = blank_module(spec).to(device).train(training)
    if list(module.buffers()):
        raise _refusal(spec, "it has buffers (batch norm?), which padding would reach")

    def alone(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        scores: Tensor = functional_call(module, parameters, (x,))
        return scores

    # Random layers would draw one tensor for the whole stack: a lane's draw would then depend
    # on where the lane is. `randomness="error"` refuses them.
    forward: Forward = vmap(alone, randomness="error")
    _try(spec, module, forward, device)
    return forward


def _try(spec: TorchSpec, module: nn.Module, forward: Forward, device: torch.device) -> None:
    parameters = {name: p.detach()[None] for name, p in module.named_parameters()}
    with own_streams(0):
        sample = torch.rand(1, 2, *spec.input_shape, device=device)
        kept, before = kept_values(module), draws(device)
        try:
            shape = tuple(forward(parameters, sample).shape)
        except Exception as error:
            raise _refusal(spec, f"{type(error).__name__}: {error}") from error
        if draws(device) != before:
            raise _refusal(spec, "it draws random numbers, which all lanes would share")
    if changed := changed_names(kept, kept_values(module)):
        raise _refusal(spec, f"it writes to {changed}, which all lanes would share")
    if shape != (1, 2, spec.n_classes):
        raise InvalidInputError(
            f"The module of {spec.factory} must return scores of shape (rows, {spec.n_classes}),"
            f" got {shape[1:]} for 2 rows."
        )


def _refusal(spec: TorchSpec, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"The module of {spec.factory} cannot be stacked: {reason}. Use execution='single'."
    )


def first_parameters(
    spec: TorchSpec, members: Sequence[MemberRows], seed: int, device: torch.device
) -> dict[str, Tensor]:
    """Build every lane's module from its own stream and stack the parameters."""
    indices = [rows.index for rows in members]
    indices += [-1] * (spec.stack_width - len(members))
    stream = member_stream(spec, seed, indices, torch.device("cpu"))
    states = []
    with own_streams(0):
        for word in stream.values(2**16, 1)[:, 0].tolist():
            seed_streams(word)
            states.append(dict(build(spec).named_parameters()))
    return {
        name: torch.stack([state[name].detach() for state in states]).to(device)
        for name in states[0]
    }
