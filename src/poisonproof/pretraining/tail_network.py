"""The third block of Network in Network and its last layer, for many members at once.

A convolution is a matrix product of the windows of all pixels with the kernels, so a stack of
members is one batched product. Batch norm looks at the real rows of its own member alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.learners.torch.networks import initialise
from poisonproof.learners.torch.streams import Purpose, Stream, uniform

__all__ = ["Tail", "normal_weights", "third_block", "windows"]

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

    Returns
    -------
    dict of tensors of shape (S, ...)
        Parameters and buffers in the order of ``module.state_dict()``, one set per lane.
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
    """Lay out the 3x3 windows of feature maps.

    Parameters
    ----------
    x : tensor of shape (n, C, H, W)
        Output of the frozen part.

    Returns
    -------
    tensor of shape (n, H * W, 9 * C)
        Zeros beyond the border; channels vary fastest.
    """
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
        """Return scores, shape (S, B, C), and move running statistics of active lanes.

        Parameters
        ----------
        columns : tensor of shape (S, B, P, 9 C)
            Windows of B rows of P pixels per lane.
        counts : int64 tensor of shape (S,)
            Real rows of each lane.
        active : bool tensor of shape (S,)
            Lanes whose running statistics move.
        """
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
        """Return the scores of all lanes on the same samples, shape (S, n, C).

        Parameters
        ----------
        columns : tensor of shape (n, P, 9 C)
            Windows of n samples.
        """
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
