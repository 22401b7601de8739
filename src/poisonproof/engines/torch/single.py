"""One member at a time: the ordinary training loop, alone on its lane.

Guarantee
---------
A stack of one. Shapes follow from the specification and the member's own partition, and no other
member's data is in reach. Workers only schedule.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from poisonproof.engines.torch.batches import planned_steps
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.learners.torch.networks import build, initialise
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Stream

__all__ = ["member_scores", "prepare_module", "train_member"]


def train_member(spec: TorchSpec, rows: MemberRows, seed: int, device: torch.device) -> MemberState:
    """Train one member from its own rows and its own stream."""
    lane = Lanes(spec, [rows], seed, device)
    module = _fresh_module(spec, lane.stream, device)
    optimizer = _optimizer(spec, module)
    last: dict[str, Tensor] = {}
    for step in planned_steps(spec, lane.stream, lane.sizes):
        # A stack of one has no padding: the batch is as wide as the member's own rows make it.
        x, targets = lane.batch(step, step.sizes[0])
        for group in optimizer.param_groups:
            group["lr"] = float(step.rates[0])
        if spec.on_nan == "last_finite":
            last = {k: v.clone() for k, v in module.state_dict().items()}
        if not _step(spec, module, optimizer, x[0], targets):
            return _stopped(spec, rows, last)
    return finished(rows.index, _host(module.state_dict(), rows), diverged=False)


def _fresh_module(spec: TorchSpec, stream: Stream, device: torch.device) -> nn.Module:
    if spec.network == "custom":
        # A user's module draws its first weights, and its dropout, from torch's own stream.
        torch.manual_seed(int(stream.values(2**16, 1)[0, 0]))
        return prepare_module(build(spec), spec, device)
    module = build(spec)
    module.load_state_dict({k: v[0] for k, v in initialise(module, stream).items()})
    return prepare_module(module, spec, device)


def prepare_module(module: nn.Module, spec: TorchSpec, device: torch.device) -> nn.Module:
    """Move a module to the device, in the memory order its convolutions like there."""
    if device.type == "cuda" and len(spec.input_shape) == 3:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.to(device)


def _optimizer(spec: TorchSpec, module: nn.Module) -> torch.optim.Optimizer:
    if spec.optimizer == "adamw":
        return torch.optim.AdamW(
            module.parameters(),
            lr=spec.learning_rate,
            betas=spec.betas,
            eps=spec.epsilon,
            weight_decay=spec.weight_decay,
        )
    return torch.optim.SGD(
        module.parameters(),
        lr=spec.learning_rate,
        momentum=spec.momentum,
        nesterov=spec.nesterov and spec.momentum > 0,
        weight_decay=spec.weight_decay,
    )


def _autocast(spec: TorchSpec) -> AbstractContextManager[object]:
    return torch.autocast(spec.device, torch.bfloat16, enabled=spec.dtype == "bfloat16")


def _step(
    spec: TorchSpec,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    targets: Tensor,
) -> bool:
    """Do one step; return False, and change nothing, if the loss is not finite."""
    module.train()
    with _autocast(spec):
        logits = module(_ordered(x))
    counts = torch.tensor([len(x)], device=x.device)
    loss = lane_losses(logits[None], targets, counts).sum()
    if not torch.isfinite(loss):
        return False
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if spec.on_nan == "last_finite":
        return all(bool(torch.isfinite(p).all()) for p in module.parameters())
    return True


def _ordered(x: Tensor) -> Tensor:
    if x.device.type == "cuda" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def _host(state: dict[str, Tensor], rows: MemberRows) -> dict[str, NDArray[Any]]:
    host = {name: value.detach().cpu().contiguous().numpy().copy() for name, value in state.items()}
    return {**host, "normalise.mean": rows.mean.numpy(), "normalise.std": rows.std.numpy()}


def _stopped(spec: TorchSpec, rows: MemberRows, last: dict[str, Tensor]) -> MemberState:
    if spec.on_nan == "last_finite":
        return finished(rows.index, _host(last, rows), diverged=False)
    return finished(rows.index, {}, diverged=True)


@torch.no_grad()
def member_scores(
    spec: TorchSpec, module: nn.Module, tensors: dict[str, Tensor], X: Tensor
) -> Tensor:
    """Return one member's scores on exactly `vote_rows` samples, shape (n, C)."""
    module.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("normalise.")})
    module.eval()
    with _autocast(spec):
        scores: Tensor = module(
            _ordered((X - tensors["normalise.mean"]) / tensors["normalise.std"])
        )
    return scores.float()
