"""The networks as ordinary modules, and the rule for their first weights."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Purpose, Stream, uniform

__all__ = ["NIN_BLOCKS", "build", "factory_name", "find_factory", "initialise"]

NIN_BLOCKS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((5, 192), (1, 160), (1, 96)),
    ((5, 192), (1, 192), (1, 192)),
    ((3, 192), (1, 192), (1, 192)),
    ((3, 192), (1, 192), (1, 192)),
)
"""Kernel side and channels of every unit of Network in Network, block after block."""


def build(spec: TorchSpec) -> nn.Module:
    """Return the network of a specification; its weights mean nothing yet.

    Examples
    --------
    >>> spec = TorchSpec("nin", (1, 28, 28), 10, execution="single")
    >>> sum(p.numel() for p in build(spec).parameters())
    996042
    """
    if spec.network in ("linear", "mlp"):
        widths = (math.prod(spec.input_shape), *(spec.hidden if spec.network == "mlp" else ()))
        return _perceptron(widths, spec.n_classes)
    if spec.network in ("nin", "nin4"):
        return _nin(spec.input_shape[0], 4 if spec.network == "nin4" else 3, spec.n_classes)
    if spec.network == "custom":
        return _custom(str(spec.factory))
    blocks = (1, 1, 1, 1) if spec.network == "resnet10" else (2, 2, 2, 2)
    return _ResNet(spec.input_shape[0], spec.width, blocks, spec.n_classes)


def _perceptron(widths: tuple[int, ...], n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_classes))


def _nin(channels: int, n_blocks: int, n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    pools = (nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1))
    for number, block in enumerate(NIN_BLOCKS[:n_blocks]):
        for side, width in block:
            layers += [
                nn.Conv2d(channels, width, side, padding=side // 2, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        if number < len(pools):
            layers.append(pools[number])
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes)
    )


class _Residual(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.around = nn.Sequential()
        if stride != 1 or before != after:
            self.around = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(out)) + self.around(x))


class _ResNet(nn.Sequential):
    """ResNet for small images: 3x3 stem, no max-pool."""

    def __init__(self, channels: int, width: int, blocks: tuple[int, ...], n_classes: int) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        before = width
        for stage, count in enumerate(blocks):
            for number in range(count):
                after = width * 2**stage
                layers.append(_Residual(before, after, 2 if stage and not number else 1))
                before = after
        super().__init__(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, n_classes)
        )


def factory_name(factory: object) -> str:
    """Return the import path of a user's factory, refusing one that has none."""
    module = getattr(factory, "__module__", None)
    name = getattr(factory, "__qualname__", "<locals>")
    if module is None or "<" in name:
        what = type(factory).__name__ if isinstance(factory, nn.Module) else repr(factory)
        kind = "an instance of " if isinstance(factory, nn.Module) else ""
        raise InvalidInputError(
            f"network is {kind}{what}, which has no import path, so a stored model could not name "
            "it. Pass a function or class at the top level of a module that takes no arguments; "
            "settings go inside: def network(): return Net(hidden=32)."
        )
    return f"{module}:{name}"


def find_factory(name: str) -> object:
    """Import a user's factory.

    Importing a module runs it, and it may draw random numbers: a process must have done so before
    a member's streams are seeded, or its first member would be another one.
    """
    module, _, attribute = name.partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _custom(name: str) -> nn.Module:
    found = find_factory(name)
    built = found() if callable(found) else None
    if not isinstance(built, nn.Module):
        raise InvalidInputError(f"The factory {name} must return a torch.nn.Module, got {built!r}.")
    return built


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((name, layer) for name, layer in module.named_modules() if not any(layer.children()))


def initialise(module: nn.Module, stream: Stream) -> dict[str, Tensor]:
    """Draw first weights: uniform in +-1/sqrt(fan-in), batch norm at one and zero.

    Returns
    -------
    dict of tensors of shape (S, ...)
        Parameters and buffers in the order of ``module.state_dict()``, one set per lane.
    """
    lanes, device = len(stream.lanes), stream.lanes.device
    state: dict[str, Tensor] = {}
    for prefix, layer in _layers(module):
        tensors = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
        for name, tensor in tensors.items():
            key = f"{prefix}.{name}" if prefix else name
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                assert isinstance(layer.weight, Tensor)
                bound = 1.0 / math.sqrt(layer.weight[0].numel())
                words = stream.values(Purpose.INITIAL + len(state), tensor.numel())
                values = (uniform(words) * 2.0 - 1.0) * bound
                state[key] = values.view(lanes, *tensor.shape)
            else:
                # Batch norm: the module's own constants, which nothing has trained yet.
                fresh = tensor.detach().to(device)
                state[key] = fresh.expand(lanes, *fresh.shape).clone()
    return {key: state[key] for key in module.state_dict()}
