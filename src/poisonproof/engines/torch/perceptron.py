"""Linear networks and perceptrons of a whole stack: scores, losses, and gradients by hand.

The gradients are the textbook's. Autograd would compute the same products, but softmax over a
last axis of ten classes costs more than they do: here classes come before rows, so that the
processor's vectors run along the rows of one lane.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["perceptron_forward", "perceptron_gradients"]

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


def perceptron_forward(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Apply S linear networks or perceptrons to S batches.

    Parameters
    ----------
    parameters : dict of tensors of shape (S, ...)
        Weights ``n.weight`` of shape (S, out, in) and biases ``n.bias`` of shape (S, out).
    x : float32 tensor of shape (S, B, ...)
        One batch per lane.

    Returns
    -------
    float32 tensor of shape (S, B, C)
    """
    layers = _layers(parameters)
    _, weight, bias = layers[-1]
    return torch.baddbmm(bias[:, None, :], _hidden(layers, x)[-1], weight.transpose(1, 2))


@torch.no_grad()
def perceptron_gradients(
    parameters: dict[str, Tensor], x: Tensor, targets: Tensor, counts: Tensor, total: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Return gradients and losses of S lanes; rows behind a lane's count weigh nothing.

    Parameters
    ----------
    parameters, x
        As in `perceptron_forward`.
    targets : float32 tensor of shape (S, B, C)
        Label distributions.
    counts : int64 tensor of shape (S,)
        Rows of each lane in this piece of its batch.
    total : int64 tensor of shape (S,)
        Rows of the whole batch: what a mean divides by.
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
    return _backwards(layers, inputs, slope), losses


def _backwards(layers: list[Layer], inputs: list[Tensor], slope: Tensor) -> dict[str, Tensor]:
    """Carry the gradient of the scores, shape (S, C, B), back through the layers."""
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
    return found
