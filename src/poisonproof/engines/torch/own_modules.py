"""Users' modules: streams of their own, and what they must not keep or share.

A module is code that nobody here has read. It may draw from any global stream, hold values that
its ``state_dict`` does not name, or be the same object every time it is built. Each of these would
carry something from one member to the next, so streams are seeded for every member, and the rest
is looked for before the first step.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.learners.digest import state_digest
from poisonproof.learners.machine_errors import is_machine_error
from poisonproof.learners.streams import restored_streams
from poisonproof.learners.torch.networks import build, find_factory
from poisonproof.learners.torch.specification import TorchSpec

__all__ = [
    "ask_once",
    "blank_module",
    "changed_names",
    "code_digest",
    "draws",
    "kept_values",
    "own_streams",
    "refuse_shared_state",
    "seed_streams",
]

_PROBE_ROWS = 4
_UNREADABLE = " at "
_SAY_IMAGE = (
    " If rows are images, say so: TorchLearner(..., image_shape=(channels, height, width))."
)


@contextmanager
def own_streams(word: int) -> Iterator[None]:
    """Seed every global stream (torch, NumPy, `random`) with one word, and give all back after.

    Examples
    --------
    >>> with own_streams(5):
    ...     first = torch.rand(1), np.random.rand(), random.random()
    >>> with own_streams(5):
    ...     again = torch.rand(1), np.random.rand(), random.random()
    >>> first == again
    True
    """
    with restored_streams(), torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a filter may turn them into errors
        seed_streams(word)
        yield


def seed_streams(word: int) -> None:
    """Seed every global stream with a word of 32 bits; callers give them back."""
    torch.manual_seed(word)
    np.random.seed(word)  # noqa: NPY002 - users' modules may draw from it
    random.seed(word)


def blank_module(spec: TorchSpec) -> nn.Module:
    """Return the network of a specification with weights that mean nothing, always the same."""
    if spec.factory is not None:
        find_factory(spec.factory)
    with own_streams(0):
        return build(spec)


def ask_once(spec: TorchSpec, module: nn.Module) -> None:
    """Ask a network about one row of zeros; a user's that cannot answer is refused, saying why."""
    row = torch.zeros(1, *spec.input_shape)
    if spec.network != "custom":
        module(row)
        return
    name = str(spec.factory).replace(":", ".")
    try:
        answer = module(row)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if is_machine_error(error):
            raise
        hint = "" if len(spec.input_shape) == 3 else _SAY_IMAGE
        raise InvalidInputError(
            f"The network {name} does not take a batch of shape {tuple(row.shape)}, one row: "
            f"{' '.join(str(error).split())[:300]}.{hint}"
        ) from error
    wanted = (1, spec.n_classes)
    if not isinstance(answer, Tensor) or answer.shape[-1:] != wanted[1:]:
        came = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise InvalidInputError(
            f"The network {name} must return one score per class, shape {wanted} for one row and "
            f"{spec.n_classes} classes, but it returns {came}."
        )


def code_digest(spec: TorchSpec) -> str | None:
    """Return a digest of a user's network as it is written today, None for networks of ours.

    Its name stays when its code changes, and stored members of the old one must not pass for
    members of the new.
    """
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


def refuse_shared_state(spec: TorchSpec) -> None:
    """Raise `GuaranteeError` for a user's module through which members would reach each other.

    The module is built twice, from two streams. The two must share no tensor, and with the same
    ``state_dict`` they must return the same scores: what else a module is made of at random is
    in no stored member, and would be another one whenever members are asked.
    """
    if spec.network != "custom":
        return
    find_factory(str(spec.factory))
    with own_streams(1):
        first = build(spec)
    with own_streams(2):
        second = build(spec)
    if _addresses(first) & _addresses(second):
        raise _refusal(
            spec,
            "it returns tensors that it returned before, so a member would go on from the weights "
            "of another. Build new layers in every call; copy pretrained ones with copy.deepcopy",
        )
    with own_streams(0):
        rows = torch.rand(_PROBE_ROWS, *spec.input_shape)
    mine = _scores(first, rows)
    with torch.no_grad():
        second.load_state_dict(first.state_dict())
    yours = _scores(second, rows)
    if mine is not None and yours is not None and not _equal(mine, yours):
        raise _refusal(
            spec,
            "with the same state_dict it returns other scores when it is built again, so it holds "
            "random values that no stored member would have. Register them as parameters or with "
            "register_buffer",
        )


def kept_values(module: nn.Module) -> dict[str, str]:
    """Return digests of what a module holds besides its ``state_dict``, by name.

    Layers that are shared by many members must not change any of it.
    """
    state = module.state_dict(keep_vars=True)
    own = {id(tensor) for tensor in state.values()}
    found: dict[str, str] = {}
    for prefix, layer in module.named_modules():
        values = {**vars(layer), **dict(layer.named_buffers(recurse=False))}
        for name, value in values.items():
            path = f"{prefix}.{name}" if prefix else name
            if name not in _BOOKKEEPING and path not in state:
                found[path] = _digest(value, own)
    return found


def changed_names(before: dict[str, str], after: dict[str, str]) -> str:
    """Name what is not as it was, "" if all of it is."""
    names = sorted({*before, *after})
    return ", ".join(name for name in names if before.get(name) != after.get(name))


_BOOKKEEPING = {"_parameters", "_buffers", "_modules", "training"}


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
    trained = (p for p in module.parameters() if p.requires_grad)
    tensors: Iterable[Tensor] = (*trained, *module.buffers())
    return {
        tensor.data_ptr()
        for tensor in tensors
        if not nn.parameter.is_lazy(tensor) and tensor.numel()
    }


@torch.no_grad()
def _scores(module: nn.Module, rows: Tensor) -> Tensor | None:
    """Return what a module answers, None if it does not take these rows: that is no one's fault."""
    try:
        with own_streams(0):
            answer = module.eval()(rows.clone())
    except Exception:
        return None
    return answer if isinstance(answer, Tensor) else None


def _equal(mine: Tensor, yours: Tensor) -> bool:
    return mine.shape == yours.shape and bool(
        ((mine == yours) | (mine.isnan() & yours.isnan())).all()
    )


def _refusal(spec: TorchSpec, reason: str) -> GuaranteeError:
    return GuaranteeError(f"The module of {spec.factory} cannot be a member: {reason}.")
