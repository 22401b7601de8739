"""One member at a time: the ordinary training loop, alone on its lane.

Guarantee
---------
A stack of one. Shapes follow from the specification and the member's own partition, and no other
member's data is in reach. Workers only schedule.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from poisonproof.engines.torch.batches import planned_steps
from poisonproof.engines.torch.device import autocast
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.modules import first_module, ordered, prepare_module
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished, host_tensors
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["member_scores", "train_member"]


def train_member(spec: TorchSpec, rows: MemberRows, seed: int, device: torch.device) -> MemberState:
    """Train one member from its own rows and its own stream."""
    lane = Lanes(spec, [rows], seed, device)
    module = prepare_module(first_module(spec, lane.stream), spec, device)
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
    return finished(rows.index, host_tensors(module.state_dict(), rows), diverged=False)


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


def _step(
    spec: TorchSpec,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    targets: Tensor,
) -> bool:
    """Do one step; return False, and change nothing, if the loss is not finite."""
    module.train()
    with autocast(spec):
        logits = module(ordered(x))
    counts = torch.tensor([len(x)], device=x.device)
    loss = lane_losses(logits[None], targets, counts).sum()
    if not torch.isfinite(loss):
        return False
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if spec.on_nan == "last_finite":
        return all(bool(torch.isfinite(v).all()) for v in module.state_dict().values())
    return True


def _stopped(spec: TorchSpec, rows: MemberRows, last: dict[str, Tensor]) -> MemberState:
    if spec.on_nan == "last_finite":
        return finished(rows.index, host_tensors(last, rows), diverged=False)
    return finished(rows.index, {}, diverged=True)


@torch.no_grad()
def member_scores(
    spec: TorchSpec, module: nn.Module, tensors: dict[str, Tensor], X: Tensor
) -> Tensor:
    """Return one member's scores on exactly `vote_rows` samples, shape (n, C)."""
    module.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("normalise.")})
    module.eval()
    with autocast(spec):
        scores: Tensor = module(ordered((X - tensors["normalise.mean"]) / tensors["normalise.std"]))
    return scores.float()
