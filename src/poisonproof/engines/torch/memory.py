"""How much memory a specification needs, known before the first step."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

from poisonproof.engines.torch.fused.layout import Layout
from poisonproof.engines.torch.own_modules import ask_once, own_streams
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.networks import build
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["available_bytes", "needed_bytes", "require_memory"]

_GIB = 2.0**30


def _sizes(spec: TorchSpec) -> tuple[int, int]:
    """Return the parameters of a member and the activations of one sample, both in values."""
    # A user's module may look at values, and meta tensors have none.
    where = "cpu" if spec.network == "custom" else "meta"
    with torch.device(where), own_streams(0), torch.no_grad():
        module = build(spec)
        outputs = [0]

        def count(_layer: nn.Module, _inputs: object, output: object) -> None:
            outputs[0] += _values(output)

        for layer in module.modules():
            if not any(layer.children()):
                layer.register_forward_hook(count)
        ask_once(spec, module.eval())
    return sum(p.numel() for p in module.parameters()), outputs[0]


def _values(output: object) -> int:
    """Return how many values a layer returns; recurrent ones and attention return several tensors.

    >>> _values((torch.zeros(2, 3), (torch.zeros(4), None)))
    10
    """
    if isinstance(output, torch.Tensor):
        return output.numel()
    if isinstance(output, dict):
        output = tuple(output.values())
    return sum(map(_values, output)) if isinstance(output, (tuple, list)) else 0


def needed_bytes(spec: TorchSpec) -> int:
    """Return the bytes that training under `spec` needs at its peak, the data not counted.

    Examples
    --------
    >>> spec = TorchSpec("mlp", (64,), 10, hidden=(64,), stack_width=50)
    >>> needed_bytes(spec) < 2**26
    True
    """
    if spec.execution == "fused":
        return spec.stack_width * Layout(spec).bytes_per_lane()
    parameters, activations = _sizes(spec)
    lanes = 1 if spec.execution == "single" else spec.stack_width
    per_value = 2 if spec.dtype == "bfloat16" else 4
    copies = 4 if spec.optimizer == "sgd" else 5
    sample = math.prod(spec.input_shape) * 4 * 4
    batch = spec.batch_size * (2 * activations * per_value + sample)
    votes = spec.vote_rows * (activations * per_value + sample)
    return lanes * (copies * parameters * 4 + max(batch, votes))


def available_bytes(spec: TorchSpec) -> int:
    """Return the free memory of the specification's device."""
    if spec.device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_memory(spec: TorchSpec) -> None:
    """Raise before the start if the specification cannot fit; never shrink it silently."""
    needed, free = needed_bytes(spec), available_bytes(spec)
    if needed > free:
        lower = "batch_size" if spec.execution == "single" else "stack_width, or batch_size"
        raise InvalidInputError(
            f"This specification needs {needed / _GIB:.1f} GiB on {spec.device}, but"
            f" {free / _GIB:.1f} GiB are free. Lower {lower} (now stack_width="
            f"{spec.stack_width}, batch_size={spec.batch_size}); that trains another model."
        )
