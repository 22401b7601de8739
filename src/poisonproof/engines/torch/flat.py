"""A network whose parameters lie in one flat tensor, and update rules for such tensors.

An update is then a handful of operations, however many layers there are, and a new member comes
in by copying. Nothing here waits for the device, so a step can be recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["FlatModule", "Rule", "make_rule"]

_ALIGNMENT = 64
"""Every parameter begins at a multiple of this many values."""


class FlatModule:
    """A module on its device, with parameters and gradients in two flat tensors.

    Parameters
    ----------
    module : nn.Module
        Its parameters are moved into the flat tensor, in the memory order they have.

    Attributes
    ----------
    parameters, gradients : float32 tensors of shape (P,)
        Zero between parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._own = [p for p in module.parameters() if p.requires_grad]
        wrong = {str(p.dtype) for p in self._own} - {"torch.float32"}
        if wrong or not self._own:
            raise InvalidInputError(
                "Members in graphs need parameters of dtype float32 that are trained, got"
                f" {', '.join(sorted(wrong)) or 'none'}. Use execution='single'."
            )
        starts, size = [], 0
        for parameter in self._own:
            starts.append(size)
            size += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        device = self._own[0].device
        self.parameters = torch.zeros(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        self._places: list[Tensor] = []
        for parameter, start in zip(self._own, starts, strict=True):
            shape, stride = parameter.size(), parameter.stride()
            view = self.parameters.as_strided(shape, stride, start)
            view.copy_(parameter.detach())
            parameter.data = view
            self._places.append(self.gradients.as_strided(shape, stride, start))

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a state in; every tensor keeps its place."""
        self.module.load_state_dict(state)

    def collect(self, loss: Tensor) -> None:
        """Fill `gradients` with those of a loss."""
        found = torch.autograd.grad(loss, self._own)
        for place, gradient in zip(self._places, found, strict=True):
            place.copy_(gradient)


class Rule(Protocol):
    """An update rule with its state; alone on its parameters."""

    state: list[Tensor]

    def step(self, parameters: Tensor, gradients: Tensor, rate: Tensor) -> None:
        """Move the parameters. `gradients` may be overwritten; `rate` has shape (1,)."""


class _SGD:
    """Momentum, Nesterov's if wished, with weight decay."""

    def __init__(self, spec: TorchSpec, parameters: Tensor) -> None:
        self._spec = spec
        self._velocity = torch.zeros_like(parameters)
        self.state = [self._velocity]

    def step(self, parameters: Tensor, gradients: Tensor, rate: Tensor) -> None:
        spec, velocity = self._spec, self._velocity
        if spec.weight_decay:
            gradients.add_(parameters, alpha=spec.weight_decay)
        torch.add(gradients, velocity, alpha=spec.momentum, out=velocity)
        ahead = gradients.add_(velocity, alpha=spec.momentum) if spec.nesterov else velocity
        parameters.addcmul_(ahead, rate, value=-1.0)


class _AdamW:
    """Adam with decoupled weight decay."""

    def __init__(self, spec: TorchSpec, parameters: Tensor) -> None:
        self._spec = spec
        self._first = torch.zeros_like(parameters)
        self._second = torch.zeros_like(parameters)
        self._count = torch.zeros(1, dtype=torch.float64, device=parameters.device)
        self.state = [self._first, self._second, self._count]

    def step(self, parameters: Tensor, gradients: Tensor, rate: Tensor) -> None:
        spec, (beta1, beta2) = self._spec, self._spec.betas
        self._count.add_(1.0)
        grown1, grown2 = ((1.0 - beta**self._count).float() for beta in (beta1, beta2))
        self._first.mul_(beta1).add_(gradients, alpha=1.0 - beta1)
        self._second.mul_(beta2).addcmul_(gradients, gradients, value=1.0 - beta2)
        size = (self._second / grown2).sqrt_().add_(spec.epsilon)
        parameters.mul_(1.0 - rate * spec.weight_decay)
        parameters.addcdiv_(self._first * (rate / grown1), size, value=-1.0)


def make_rule(spec: TorchSpec, parameters: Tensor) -> Rule:
    """Return the update rule of a specification for flat parameters."""
    return _SGD(spec, parameters) if spec.optimizer == "sgd" else _AdamW(spec, parameters)
