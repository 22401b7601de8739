"""Layers of ordinary modules, computed the way that is quick and repeatable on a GPU.

Convolutions of one pixel, and the first one of a gray image, are matrix products; pooling is a
maximum of slices, whose gradient needs no atomic additions. Activations keep channels last.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Pixels", "batch_norm", "convolve", "max_pool", "run_layers"]

_MOMENTUM = 0.1
"""Share of a batch in the running statistics."""


class Pixels:
    """Mean and standard deviation of pixels, kept on the device of the images.

    Parameters
    ----------
    mean, std : tuple of float
        Per channel, for pixels between 0 and 1.
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean = torch.tensor(mean).view(-1, 1, 1) * 255.0
        self.std = torch.tensor(std).view(-1, 1, 1) * 255.0

    def to(self, device: torch.device) -> None:
        """Move both: a recorded step cannot fetch them from the host."""
        self.mean, self.std = self.mean.to(device), self.std.to(device)

    def normalised(self, x: Tensor) -> Tensor:
        """Return pixels (0 to 255) less the mean, in standard deviations."""
        return (x - self.mean) / self.std


def run_layers(layers: Iterable[nn.Module], x: Tensor, dtype: torch.dtype, train: bool) -> Tensor:
    """Send a batch through convolutions, batch norms, ReLUs and pools.

    Parameters
    ----------
    layers : iterable of modules
        As in Network in Network.
    x : tensor of shape (n, C, H, W)
        Images or activations.
    dtype : torch.dtype
        Of products.
    train : bool
        Whether batch norm uses the batch (and moves the running statistics) or what it has seen.
    """
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            x = convolve(x, layer, dtype)
        elif isinstance(layer, nn.BatchNorm2d):
            x = batch_norm(x, layer, train)
        elif isinstance(layer, nn.ReLU):
            x = x.relu()
        elif isinstance(layer, nn.MaxPool2d):
            x = max_pool(x)
        elif isinstance(layer, nn.AvgPool2d):
            x = functional.avg_pool2d(x, 3, 2, 1)
        else:
            raise TypeError(f"no rule for a layer of type {type(layer).__name__}")
    return x


def convolve(x: Tensor, layer: nn.Conv2d, dtype: torch.dtype) -> Tensor:
    """Return a convolution without bias, same padding, in `dtype`."""
    weight, side = layer.weight.to(dtype), layer.kernel_size[0]
    x = x.to(dtype)
    if side == 1 and layer.stride[0] == 1:
        return functional.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)
    if x.shape[1] == 1 and layer.stride[0] == 1:
        columns = _columns(x[:, 0], side)
        kernels = functional.pad(weight.flatten(1), (0, columns.shape[-1] - side * side))
        return functional.linear(columns, kernels).permute(0, 3, 1, 2)
    return functional.conv2d(x, weight, None, layer.stride, layer.padding)


def _columns(x: Tensor, side: int) -> Tensor:
    """Lay out the window of every pixel of a gray image, shape (n, H, W, columns).

    Zeros fill the columns up to a multiple of eight, which matrix instructions like.
    """
    border = side // 2
    padded = functional.pad(x, (border, border, border, border))
    height, width = x.shape[1:]
    windows = [
        padded[:, dy : dy + height, dx : dx + width] for dy in range(side) for dx in range(side)
    ]
    windows += [torch.zeros_like(x)] * (-len(windows) % 8)
    return torch.stack(windows, dim=-1)


def batch_norm(x: Tensor, layer: nn.BatchNorm2d, train: bool) -> Tensor:
    """Return batch norm in float32 statistics, in the dtype of `x`."""
    return functional.batch_norm(
        x, layer.running_mean, layer.running_var, layer.weight, layer.bias, train, _MOMENTUM
    )


def max_pool(x: Tensor) -> Tensor:
    """Return the maximum of windows of 3 pixels, every second one, of values that are not negative.

    Examples
    --------
    >>> max_pool(torch.arange(16.0).view(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    x = functional.pad(x, (1, 1, 1, 1))
    x = torch.maximum(torch.maximum(x[:, :, 0:-2:2], x[:, :, 1:-1:2]), x[:, :, 2::2])
    return torch.maximum(torch.maximum(x[..., 0:-2:2], x[..., 1:-1:2]), x[..., 2::2])
