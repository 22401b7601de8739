"""SGD and AdamW on stacked parameters, with a learning rate and an on-switch per lane.

No quantity is shared by two lanes: no clipping over the stack, no common loss scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["LaneOptimizer"]


class LaneOptimizer:
    """Update rule with its state for S members at once.

    Parameters
    ----------
    spec : TorchSpec
        Rule and constants.
    parameters : dict of tensors of shape (S, ...)
        Changed by `step`.
    """

    def __init__(self, spec: TorchSpec, parameters: dict[str, Tensor]) -> None:
        self.spec = spec
        self.steps = 0
        self.parameters = parameters
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second: dict[str, Tensor] = {}
        lanes = next(iter(parameters.values()))
        self.count = torch.zeros(len(lanes), device=lanes.device, dtype=torch.int64)
        self.corrections = self._corrections(64)
        if spec.optimizer == "adamw":
            self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def _corrections(self, size: int) -> Tensor:
        """Return Adam's factors 1 - beta**t for t < size, shape (2, size).

        From a table: a vectorised power may round differently at the end of a tensor, and a
        lane's place must not matter.
        """
        table = [[1.0 - beta**t if t else 1.0 for t in range(size)] for beta in self.spec.betas]
        return torch.tensor(table, dtype=torch.float32, device=self.count.device)

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor], rates: Tensor, active: Tensor) -> None:
        """Move the active lanes; the others keep parameters and state, bit for bit.

        Parameters
        ----------
        gradients : dict of tensors of shape (S, ...)
            One per parameter; overwritten.
        rates : float32 tensor of shape (S,)
            Learning rate of each lane.
        active : bool tensor of shape (S,)
            Lanes with rows in this step.
        """
        self.count = torch.where(active, self.count + 1, self.count)
        self.steps += 1
        if self.steps >= self.corrections.shape[1]:
            self.corrections = self._corrections(2 * self.steps)
        state = [*self.parameters.values(), *self.first.values(), *self.second.values()]
        # Asking a CUDA device would wait for it; a CPU knows at once that no lane has to wait.
        everyone = active.device.type == "cpu" and bool(active.all())
        keep = not everyone or self.spec.on_nan == "last_finite"
        before = [tensor.clone() for tensor in state] if keep else []
        rule = self._sgd if self.spec.optimizer == "sgd" else self._adamw
        for name, gradient in gradients.items():
            shape = (-1, *(1,) * (gradient.ndim - 1))
            rule(name, gradient, rates.view(shape), shape)
        if self.spec.on_nan == "last_finite":
            for parameter in self.parameters.values():
                active = active & torch.isfinite(parameter).flatten(1).all(dim=1)
        for tensor, old in zip(state, before, strict=keep):
            on = active.view(-1, *(1,) * (tensor.ndim - 1))
            tensor.copy_(torch.where(on, tensor, old))

    def _sgd(self, name: str, gradient: Tensor, rate: Tensor, shape: tuple[int, ...]) -> None:
        parameter, velocity = self.parameters[name], self.first[name]
        if self.spec.weight_decay:
            gradient.add_(parameter, alpha=self.spec.weight_decay)
        velocity.mul_(self.spec.momentum).add_(gradient)
        if self.spec.nesterov:
            ahead = gradient.add_(velocity * self.spec.momentum).mul_(rate)
        else:
            ahead = torch.mul(velocity, rate, out=gradient)
        parameter.sub_(ahead)

    def _adamw(self, name: str, gradient: Tensor, rate: Tensor, shape: tuple[int, ...]) -> None:
        parameter, (beta1, beta2) = self.parameters[name], self.spec.betas
        first = self.first[name].mul_(beta1).add_(gradient * (1.0 - beta1))
        second = self.second[name].mul_(beta2).add_((gradient * gradient).mul_(1.0 - beta2))
        grown1, grown2 = (row[self.count].view(shape) for row in self.corrections)
        size = (second / grown2).sqrt_().add_(self.spec.epsilon)
        parameter.mul_(1.0 - rate * self.spec.weight_decay)
        parameter.sub_((first / grown1).mul_(rate).div_(size))
