"""One member at a time: the ordinary training loop, alone on its lane.

Guarantee
---------
A stack of one. Shapes follow from the specification and the member's own partition, and no other
member's data is in reach. Workers only schedule.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from poisonproof.engines.torch.batches import (
    member_stream,
    mixup_weights,
    n_steps,
    plan_epoch,
    step_sizes,
)
from poisonproof.engines.torch.losses import lane_losses, mix, soft_labels
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.learners.torch.augmentation import augment
from poisonproof.learners.torch.networks import build, initialise
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.learners.torch.streams import Stream

__all__ = ["member_scores", "prepare_module", "train_member"]


def train_member(
    spec: TorchSpec, rows: MemberRows, seed: int, device: torch.device
) -> MemberState:
    """Train one member from its own rows and its own stream."""
    stream = member_stream(spec, seed, [rows.index], device)
    module = _fresh_module(spec, stream, device)
    optimizer = _optimizer(spec, module)
    data = tuple(t.to(device) for t in (rows.X, rows.y, rows.mean, rows.std))
    sizes, steps = step_sizes(len(rows), spec), n_steps(len(rows), spec)
    lengths = torch.tensor([len(rows)], device=device)
    last: dict[str, Tensor] = {}
    for epoch in range(spec.epochs):
        plan = plan_epoch(spec, stream, lengths, epoch)
        shares = mixup_weights(spec, stream, epoch, steps) if spec.mixup else None
        for step, size in enumerate(sizes):
            own = plan.rows[:, step, :size]
            share = None if shares is None else shares[:, step]
            x, targets = _batch(spec, data, own, stream, epoch, share)
            for group in optimizer.param_groups:
                group["lr"] = spec.rate(epoch, step, steps)
            if spec.on_nan == "last_finite":
                last = {k: v.clone() for k, v in module.state_dict().items()}
            if not _step(spec, module, optimizer, x, targets):
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
        return module.to(device, memory_format=torch.channels_last)
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


def _batch(
    spec: TorchSpec,
    data: tuple[Tensor, ...],
    rows: Tensor,
    stream: Stream,
    epoch: int,
    share: Tensor | None,
) -> tuple[Tensor, Tensor]:
    X, y, mean, std = data
    x = X[rows]
    if not spec.augmentation.is_identity:
        x = augment(x, spec.augmentation, stream, epoch, rows)
    x, targets = (x - mean) / std, soft_labels(y[rows], spec)
    if share is not None:
        counts = torch.tensor([rows.shape[1]], device=rows.device)
        x, targets = mix(x, share, counts), mix(targets, share, counts)
    return x[0], targets


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


def _host(state: dict[str, Tensor], rows: MemberRows) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    host = {name: np.array(value.detach().cpu().contiguous()) for name, value in state.items()}
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
        scores: Tensor = module(_ordered((X - tensors["normalise.mean"]) / tensors["normalise.std"]))
    return scores.float()
