"""The weights of one module in one flat array, so that an update is a handful of operations."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from poisonproof.pretraining.specification import PretrainSpec

__all__ = ["AdamWeights", "FlatWeights"]

_FADING = 0.999
"""Share of the old mean square in Adam's new one."""
_SMALLEST = 1e-8
"""Added to Adam's root mean square."""


class FlatWeights:
    """Parameters, gradients and momentum of a module, each as one vector.

    Parameters
    ----------
    module : nn.Module
        On its device; its parameters become views of the vector.
    """

    n_moments = 1

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        size = sum(parameter.numel() for parameter in named.values())
        device = next(iter(named.values())).device
        self.values = torch.zeros(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        shape = (size,) if self.n_moments == 1 else (self.n_moments, size)
        self.moments = torch.zeros(shape, device=device)
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

    def step_size(self, rate: float, done: int, law: PretrainSpec) -> float:
        """Return the factor of the next step after `done` steps, from the planned rate."""
        return rate

    @torch.no_grad()
    def update(self, rate: Tensor, law: PretrainSpec) -> None:
        """Take one step of gradient descent, with a rate that lies on the device."""
        gradient = torch.add(self.gradients, self.values, alpha=law.weight_decay)
        self.moments.mul_(law.momentum).add_(gradient)
        if law.nesterov:
            gradient.add_(self.moments, alpha=law.momentum)
        else:
            gradient = self.moments
        self.values.addcmul_(gradient, rate, value=-1.0)


class AdamWeights(FlatWeights):
    """The same with steps of Adam (Kingma and Ba, 2015), which do not depend on scales.

    Means are kept without correction; `step_size` corrects for their start at zero, so that
    nothing on the device counts steps.
    """

    n_moments = 2

    def step_size(self, rate: float, done: int, law: PretrainSpec) -> float:
        """Return the rate, corrected for both means' start at zero."""
        count = done + 1
        return rate * math.sqrt(1.0 - _FADING**count) / (1.0 - law.momentum**count)

    @torch.no_grad()
    def update(self, rate: Tensor, law: PretrainSpec) -> None:
        """Take one step, with a rate that lies on the device.

        Decay shrinks weights by itself (Loshchilov and Hutter, 2019): as a part of the gradient it
        would be all that is left where the loss is flat, and take full steps towards zero.
        """
        mean, square = self.moments
        mean.lerp_(self.gradients, 1.0 - law.momentum)
        square.mul_(_FADING).addcmul_(self.gradients, self.gradients, value=1.0 - _FADING)
        step = mean / square.sqrt().add_(_SMALLEST)
        self.values.addcmul_(step.add_(self.values, alpha=law.weight_decay), rate, value=-1.0)


def _shaped(vector: Tensor, place: slice, shape: torch.Size) -> Tensor:
    """Return a stretch of a vector as a parameter; kernels of convolutions keep channels last."""
    if len(shape) != 4:
        return vector[place].view(shape)
    out, channels, height, width = shape
    return vector[place].view(out, height, width, channels).permute(0, 3, 1, 2)
