"""The networks as modules, their first weights, and what users' own modules must not do.

Hand-written: torchvision's ResNets are for large images, it has no Network in Network, and first
weights must come from a member's own random stream.
"""

from __future__ import annotations

import importlib
import math
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.members.digest import state_digest
from poisonproof.members.member import is_machine_error
from poisonproof.members.streams import restored_streams
from poisonproof.networks.augmentation import Purpose, Stream, uniform
from poisonproof.networks.specification import NetworkSpec

NIN_BLOCKS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((5, 192), (1, 160), (1, 96)),
    ((5, 192), (1, 192), (1, 192)),
    ((3, 192), (1, 192), (1, 192)),
    ((3, 192), (1, 192), (1, 192)),
)
"""Kernel side and channels of every unit of Network in Network, block after block."""


def build(spec: NetworkSpec) -> nn.Module:
    """Return the network of a specification; its weights mean nothing yet."""
    if spec.network in ("linear", "mlp"):
        widths = (math.prod(spec.input_shape), *(spec.hidden if spec.network == "mlp" else ()))
        return _perceptron(widths, spec.n_classes)
    if spec.network in ("nin", "nin4"):
        return _nin(spec.input_shape[0], 4 if spec.network == "nin4" else 3, spec.n_classes)
    if spec.network == "custom":
        return _custom(str(spec.factory))
    blocks = 1 if spec.network == "resnet10" else 2
    return _resnet(spec.input_shape[0], spec.width, blocks, spec.n_classes)


def _perceptron(widths: tuple[int, ...], n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_classes))


def _unit(before: int, after: int, side: int) -> list[nn.Module]:
    layer = nn.Conv2d(before, after, side, padding=side // 2, bias=False)
    return [layer, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


def _classifier(layers: list[nn.Module], width: int, n_classes: int) -> nn.Sequential:
    last = nn.Linear(width, n_classes)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def _nin(channels: int, n_blocks: int, n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    pools = (nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1))
    for number, block in enumerate(NIN_BLOCKS[:n_blocks]):
        for side, width in block:
            layers += _unit(channels, width, side)
            channels = width
        layers += pools[number : number + 1]
    return _classifier(layers, channels, n_classes)


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


def _resnet(channels: int, width: int, blocks: int, n_classes: int) -> nn.Sequential:
    """Return a ResNet for small images: 3x3 stem, no max-pool."""
    layers, before = _unit(channels, width, 3), width
    for stage in range(4):
        for number in range(blocks):
            after = width * 2**stage
            layers.append(_Residual(before, after, 2 if stage and not number else 1))
            before = after
    return _classifier(layers, before, n_classes)


def factory_name(factory: object) -> str:
    """Return the import path of a user's factory, refusing one that has none."""
    module = getattr(factory, "__module__", None)
    name = getattr(factory, "__qualname__", "<locals>")
    if module is None or "<" in name:
        raise InvalidInputError(
            f"network is a {type(factory).__name__} that has no import path, so a stored model "
            "could not name it. Pass a function or class at the top level of a module that takes "
            "no arguments; settings go inside: def network(): return Net(hidden=32)."
        )
    return f"{module}:{name}"


def find_factory(name: str) -> object:
    """Import a user's factory; before streams are seeded, because its module may draw from them."""
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


def initialise(module: nn.Module, stream: Stream) -> dict[str, Tensor]:
    """Draw first weights (S, ...): uniform in +-1/sqrt(fan-in), batch norm at one and zero."""
    lanes, device = len(stream.lanes), stream.lanes.device
    state: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules():
        if any(layer.children()):
            continue
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


# Users' modules. One may draw from any global stream, hold values that its ``state_dict`` does not
# name, or be the same object every time it is built: each would carry something from one member to
# the next. So streams are seeded for every member, and the rest is looked for before training.

_UNREADABLE = " at "


@contextmanager
def own_streams(word: int) -> Iterator[None]:
    """Seed every global stream (torch, NumPy, `random`) with one word, and give all back after."""
    with restored_streams(), torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a filter may turn them into errors
        seed_streams(word)
        yield


def seed_streams(word: int) -> None:
    """Seed every global stream with a word of 32 bits; callers give them back."""
    torch.manual_seed(word)
    np.random.seed(word)  # noqa: NPY002 - users' modules may draw from it
    random.seed(word)


def blank_module(spec: NetworkSpec) -> nn.Module:
    """Return the network of a specification with weights that mean nothing, always the same."""
    if spec.factory is not None:
        find_factory(spec.factory)
    with own_streams(0):
        return build(spec)


def code_digest(spec: NetworkSpec) -> str | None:
    """Return a digest of the code of a user's network, None for networks of this library."""
    if spec.factory is None:
        return None
    module = blank_module(spec)
    kinds = [type(layer) for layer in module.modules()]
    kept = {name: text for name, text in kept_values(module).items() if _UNREADABLE not in text}
    return state_digest([find_factory(spec.factory), kinds, repr(module), sorted(kept.items())])


def draws(device: torch.device) -> tuple[Any, ...]:
    """Return where every global stream stands; equal before and after if nothing was drawn."""
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    cuda = torch.cuda.get_rng_state(device).numpy().tobytes() if device.type == "cuda" else b""
    return (
        torch.get_rng_state().numpy().tobytes(),
        cuda,
        state["state"]["key"].tobytes(),
        state["state"]["pos"],
        random.getstate(),
    )


def refuse_shared_state(spec: NetworkSpec) -> None:
    """Refuse a user's module that cannot be run, or through which members would reach each other.

    The module is built twice, from two streams. The two must share no tensor, and with the same
    ``state_dict`` they must return the same scores: no stored member holds other random values of
    a module, so they would change whenever members vote.
    """
    if spec.network != "custom":
        return
    with own_streams(1):
        first = build(spec)
    with own_streams(2):
        second = build(spec)
    what = f"The module of {spec.factory} cannot be a member:"
    if _addresses(first) & _addresses(second):
        raise GuaranteeError(
            f"{what} it returns the same tensors on every call, so one member would continue from"
            " another's weights. Build new layers in every call; copy pretrained ones with"
            " copy.deepcopy."
        )
    mine = _tried(spec, first)
    second.load_state_dict(first.state_dict())
    if not np.array_equal(mine, _tried(spec, second), equal_nan=True):
        raise GuaranteeError(
            f"{what} built again with the same state_dict, it returns other scores, so it holds"
            " random values that no stored member would have. Register them as parameters"
            " or with register_buffer."
        )


@torch.no_grad()
def _tried(spec: NetworkSpec, module: nn.Module) -> NDArray[np.float64]:
    """Return a user's network's scores of four random rows, or say what is wrong with it."""
    name = str(spec.factory).replace(":", ".")
    with own_streams(0):
        rows = torch.rand(4, *spec.input_shape)
        try:
            scores = module.eval()(rows.clone())
        except Exception as error:
            if is_machine_error(error):
                raise
            images = "TorchLearner(..., image_shape=(channels, height, width))"
            hint = f" If rows are images, say so: {images}." if rows.ndim == 2 else ""
            raise InvalidInputError(
                f"The network {name} does not take a batch of shape {tuple(rows.shape)}:"
                f" {' '.join(str(error).split())[:300]}.{hint}"
            ) from error
    came = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if came != (len(rows), spec.n_classes):
        raise InvalidInputError(
            f"The network {name} must return one score per class, shape"
            f" {(len(rows), spec.n_classes)} for {len(rows)} rows and {spec.n_classes} classes, but"
            f" it returns {came}."
        )
    return np.asarray(scores.double().numpy())


def kept_values(module: nn.Module) -> dict[str, str]:
    """Return digests of what a module holds besides its ``state_dict``, by name."""
    state = module.state_dict(keep_vars=True)
    own = {id(tensor) for tensor in state.values()}
    bookkeeping = {"_parameters", "_buffers", "_modules", "training"}
    found: dict[str, str] = {}
    for prefix, layer in module.named_modules():
        values = {**vars(layer), **dict(layer.named_buffers(recurse=False))}
        for name, value in values.items():
            path = f"{prefix}.{name}" if prefix else name
            if name not in bookkeeping and path not in state:
                found[path] = _digest(value, own)
    return found


def require_repeatable(
    spec: NetworkSpec, module: nn.Module, device: torch.device, run: Callable[[], object]
) -> None:
    """Refuse a user's module that no graph can replay: it raises, draws or remembers."""
    kept, before, cause = kept_values(module), draws(device), None
    reason = ""
    try:
        run()
    except Exception as error:
        reason, cause = f"{type(error).__name__}: {error}", error
    else:
        after = kept_values(module)
        changed = [name for name in {**kept, **after} if kept.get(name) != after.get(name)]
        if draws(device) != before:
            reason = "it draws random numbers, which members would share"
        elif changed:
            reason = (
                f"it writes to {', '.join(sorted(changed))}, which is not in its state_dict, so"
                " members would share it"
            )
    if reason:
        raise InvalidInputError(
            f"The module of {spec.factory} cannot be replayed from a graph: {reason}. Use"
            " execution='single'."
        ) from cause


def _digest(value: Any, own: set[int]) -> str:
    try:
        return state_digest(_plain(value, own))
    except Exception:  # nobody knows how to read it; that it is another object can be seen
        return f"{type(value).__qualname__}{_UNREADABLE}{id(value)}"


def _plain(value: Any, own: set[int]) -> Any:
    """Return what `state_digest` can read; tensors of the state are not looked at again."""
    if isinstance(value, Tensor):
        if id(value) in own:
            return "state"
        return str(value.dtype), tuple(value.shape), value.detach().cpu().double().numpy()
    if isinstance(value, nn.Module):
        state = value.state_dict(keep_vars=True)
        return {name: _plain(tensor, own) for name, tensor in state.items()}
    if isinstance(value, dict):
        return {str(key): _plain(item, own) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(item, own) for item in value]
    return value


def _addresses(module: nn.Module) -> set[int]:
    """Return where tensors lie that training changes; frozen weights may be shared."""
    tensors = [*(p for p in module.parameters() if p.requires_grad), *module.buffers()]
    return {t.data_ptr() for t in tensors if not nn.parameter.is_lazy(t) and t.numel()}


def prepare_module(module: nn.Module, spec: NetworkSpec, device: torch.device) -> nn.Module:
    """Move a module to the device, in the memory order that suits its convolutions there."""
    if device.type == "cuda" and len(spec.input_shape) == 3:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.to(device)


def ordered(x: Tensor) -> Tensor:
    """Return a batch in the memory order of `prepare_module`."""
    if x.device.type == "cuda" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def first_module(spec: NetworkSpec, stream: Stream) -> nn.Module:
    """Return one member's network before its first step, on the host, from its own stream.

    For a user's module global streams are left seeded; callers give them back.
    """
    if spec.network == "custom":
        find_factory(str(spec.factory))
        seed_streams(int(stream.on_host().values(2**16, 1)[0, 0]))
        return build(spec)
    module = build(spec)
    module.load_state_dict({name: v[0] for name, v in initialise(module, stream).items()})
    return module
