"""A member's network on its device, and its first weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from poisonproof.engines.torch.own_modules import seed_streams
from poisonproof.learners.torch.networks import build, find_factory, initialise
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Stream

__all__ = ["first_module", "ordered", "prepare_module"]


def prepare_module(module: nn.Module, spec: TorchSpec, device: torch.device) -> nn.Module:
    """Move a module to the device, in the memory order its convolutions like there."""
    if device.type == "cuda" and len(spec.input_shape) == 3:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.to(device)


def ordered(x: Tensor) -> Tensor:
    """Return a batch in the memory order of `prepare_module`."""
    if x.device.type == "cuda" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def first_module(spec: TorchSpec, stream: Stream) -> nn.Module:
    """Return one member's network before its first step, on the host, from its own stream.

    A user's module draws its first weights from global streams, which are left seeded for the
    module's random layers: callers give them back.
    """
    if spec.network == "custom":
        find_factory(str(spec.factory))
        seed_streams(int(stream.on_host().values(2**16, 1)[0, 0]))
        return build(spec)
    module = build(spec)
    module.load_state_dict({name: v[0] for name, v in initialise(module, stream).items()})
    return module
