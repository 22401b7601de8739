"""Stacks of members on frozen features, from first weights to finished members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from poisonproof.engines.torch.batches import Step, planned_steps
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.optimizers import LaneOptimizer
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState, finished
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.networks import initialise
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.tail_network import Tail, normal_weights, third_block, windows
from poisonproof.pretraining.tail_specification import TailSpec

__all__ = ["ask_stack", "check_sizes", "train_stack"]


def check_sizes(spec: TailSpec, members: Sequence[MemberRows]) -> None:
    """Raise if a batch of some member does not fit into its lane."""
    for rows in members:
        if min(len(rows), spec.schedule.batch_size) > spec.lane_rows:
            raise InvalidInputError(
                f"Partition {rows.index} has {len(rows)} rows, but lane_rows={spec.lane_rows}."
                " Raise lane_rows (up to batch_size)."
            )


def train_stack(
    spec: TailSpec,
    frozen: FrozenNetwork,
    members: Sequence[MemberRows],
    seed: int,
    device: torch.device,
) -> list[MemberState]:
    """Train at most `stack_width` members side by side; lanes without one stay still.

    Augmentation changes images, so the frozen part runs at every step, on all lanes at once.
    """
    lanes = Lanes(spec.schedule, members, seed, device)
    draw = initialise if spec.first_weights == "uniform" else normal_weights
    state = draw(third_block(n_classes=spec.n_classes), lanes.stream)
    state = {k: v.contiguous() for k, v in state.items() if not k.endswith("num_batches_tracked")}
    names = Tail.parameter_names(state)
    for name in names:
        state[name].requires_grad_(True)
    optimizer = LaneOptimizer(spec.schedule, {name: state[name] for name in names})
    tail = Tail(state, getattr(torch, spec.schedule.dtype))
    healthy = torch.ones(spec.stack_width, dtype=torch.bool, device=device)
    for step in planned_steps(spec.schedule, lanes.stream, lanes.sizes):
        columns, targets = _batch(spec, frozen, lanes, step)
        active = healthy & (step.counts > 0)
        scores = tail.train_scores(columns, step.counts, active)
        losses = lane_losses(scores, targets, step.counts)
        found = torch.autograd.grad(losses.sum(), [state[name] for name in names])
        healthy = healthy & torch.isfinite(losses.detach())
        optimizer.step(dict(zip(names, found, strict=True)), step.rates, healthy & active)
    return _finished(members, state, healthy)


def _batch(
    spec: TailSpec, frozen: FrozenNetwork, lanes: Lanes, step: Step
) -> tuple[Tensor, Tensor]:
    """Return the windows of every lane's rows, shape (S, B, P, 9 C), and label distributions."""
    images, targets = lanes.raw(step, spec.lane_rows)
    features = frozen.rows(images.flatten(0, 1))
    columns = windows(features)
    return columns.view(*images.shape[:2], *columns.shape[1:]), targets


def _finished(
    members: Sequence[MemberRows], state: dict[str, Tensor], healthy: Tensor
) -> list[MemberState]:
    host = {name: value.detach().cpu().numpy() for name, value in state.items()}
    fine = healthy.cpu().numpy()
    return [
        finished(
            rows.index,
            {name: np.array(array[lane]) for name, array in host.items()},
            diverged=not fine[lane],
        )
        for lane, rows in enumerate(members)
    ]


@torch.no_grad()
def ask_stack(
    spec: TailSpec, members: Sequence[MemberState], features: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """Yield scores of up to `stack_width` members, some samples at a time: (rows, (S, n, C)).

    Parameters
    ----------
    spec : TailSpec
        The law of the members.
    members : sequence of MemberState
        Those that vote.
    features : tensor of shape (n, C, H, W)
        Output of the frozen part.
    """
    filled = [*members, *[members[0]] * (spec.stack_width - len(members))]
    state = {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in filled]))
        for name in members[0].tensors
    }
    state = {name: value.to(features.device) for name, value in state.items()}
    tail = Tail(state, getattr(torch, spec.schedule.dtype))
    size = spec.schedule.vote_rows
    for start in range(0, len(features), size):
        rows = slice(start, min(start + size, len(features)))
        part = features[rows]
        if len(part) < size:
            filled_up = features.new_zeros(size, *features.shape[1:])
            filled_up[: len(part)] = part
            part = filled_up
        scores = tail.vote_scores(windows(part))
        yield rows, scores[: len(members), : rows.stop - start]
