"""The weights of one module in one flat array, so that an update is a handful of operations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["FlatWeights"]


class FlatWeights:
    """Parameters, gradients and momentum of a module, each as one vector.

    Parameters
    ----------
    module : nn.Module
        On its device; its parameters become views of the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        size = sum(parameter.numel() for parameter in named.values())
        device = next(iter(named.values())).device
        self.values = torch.zeros(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        self.velocity = torch.zeros(size, device=device)
        self.shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        places = self._places()
        for name, parameter in named.items():
            view = _shaped(self.values, places[name], parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
        self.parameters = list(named.values())
        self._gradients = [
            _shaped(self.gradients, places[name], parameter.shape)
            for name, parameter in named.items()
        ]

    def _places(self) -> dict[str, slice]:
        places, start = {}, 0
        for name, shape in self.shapes.items():
            size = int(torch.Size(shape).numel())
            places[name] = slice(start, start + size)
            start += size
        return places

    def differentiate(self, loss: Tensor) -> None:
        """Put the gradient of `loss` into `gradients`."""
        found = torch.autograd.grad(loss, self.parameters)
        torch._foreach_copy_(self._gradients, list(found))

    @torch.no_grad()
    def update(self, rate: Tensor, momentum: float, nesterov: bool, weight_decay: float) -> None:
        """Take one step of gradient descent, with a rate that lies on the device."""
        gradient = torch.add(self.gradients, self.values, alpha=weight_decay)
        self.velocity.mul_(momentum).add_(gradient)
        if nesterov:
            gradient.add_(self.velocity, alpha=momentum)
        else:
            gradient = self.velocity
        self.values.addcmul_(gradient, rate, value=-1.0)


def _shaped(vector: Tensor, place: slice, shape: torch.Size) -> Tensor:
    """Return a stretch of a vector as a parameter; kernels of convolutions keep channels last."""
    if len(shape) != 4:
        return vector[place].view(shape)
    out, channels, height, width = shape
    return vector[place].view(out, height, width, channels).permute(0, 3, 1, 2)
