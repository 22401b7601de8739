"""Scores and votes of finished members, streamed block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.engines.torch.graphs import graph_scores
from poisonproof.engines.torch.modules import prepare_module
from poisonproof.engines.torch.own_modules import blank_module, kept_values, own_streams
from poisonproof.engines.torch.perceptron import perceptron_forward
from poisonproof.engines.torch.settings import use_onednn
from poisonproof.engines.torch.single import member_scores
from poisonproof.engines.torch.stacked import stack_scores
from poisonproof.engines.torch.state import MemberState
from poisonproof.engines.torch.vectorised import module_forward
from poisonproof.learners.base import ABSTAIN
from poisonproof.learners.streams import stream_seed
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["Block", "Stacks", "score_blocks", "votes_of"]

Block = tuple[list[int], slice, Tensor]
"""Positions of members, rows of the samples, and scores of shape (members, rows, C)."""


Stacks = dict[int, dict[str, Tensor]]
"""Weights of whole stacks on the device, by the first voter; filled as members are asked."""


def score_blocks(
    spec: TorchSpec, members: Sequence[MemberState], X: NDArray[np.float32], stacks: Stacks
) -> Iterator[Block]:
    """Yield scores, some members on some rows at a time; abstaining members are left out.

    Every launch has the shapes of the specification: `stack_width` lanes (the last stack repeats
    its first member) and `vote_rows` samples (zeros fill the last block up).
    """
    require_device(spec)
    with deterministic(spec):
        seen = _seen(spec, members, X, stacks)
        if not spec.mirrored_votes:
            yield from seen
            return
        mirrored = _seen(spec, members, np.ascontiguousarray(X[..., ::-1]), stacks)
        for (places, rows, scores), (_, _, others) in zip(seen, mirrored, strict=True):
            yield places, rows, (scores.float() + others.float()) * 0.5


def _seen(
    spec: TorchSpec, members: Sequence[MemberState], X: NDArray[np.float32], stacks: Stacks
) -> Iterator[Block]:
    device = require_device(spec)
    voters = [place for place, member in enumerate(members) if not member.abstains]
    if spec.execution == "fused":
        from poisonproof.engines.torch.fused.trainer import fused_scores

        yield from fused_scores(spec, members, voters, X)
    elif spec.execution == "graph":
        yield from graph_scores(spec, members, voters, X, device)
    elif spec.execution == "single":
        yield from _alone(spec, members, voters, X, device)
    else:
        yield from _together(spec, members, voters, X, device, stacks)


def _blocks(spec: TorchSpec, X: NDArray[np.float32], device: torch.device) -> list[Tensor]:
    blocks = []
    for start in range(0, len(X), spec.vote_rows):
        block = np.zeros((spec.vote_rows, *spec.input_shape), np.float32)
        part = X[start : start + spec.vote_rows]
        block[: len(part)] = part
        blocks.append(torch.from_numpy(block).to(device))
    return blocks


def _rows(number: int, spec: TorchSpec, total: int) -> slice:
    start = number * spec.vote_rows
    return slice(start, min(start + spec.vote_rows, total))


def _together(
    spec: TorchSpec,
    members: Sequence[MemberState],
    voters: list[int],
    X: NDArray[np.float32],
    device: torch.device,
    stacks: Stacks,
) -> Iterator[Block]:
    stacked = spec.execution == "stacked"
    forward = perceptron_forward if stacked else module_forward(spec, device, training=False)
    blocks = _blocks(spec, X, device)
    for start in range(0, len(voters), spec.stack_width):
        group = voters[start : start + spec.stack_width]
        tensors = stacks.get(start)
        if tensors is None:
            tensors = stacks[start] = _stack(spec, [members[i] for i in group], device)
        for number, block in enumerate(blocks):
            rows = _rows(number, spec, len(X))
            use_onednn()
            scores = stack_scores(spec, tensors, block, forward)
            yield group, rows, scores[: len(group), : rows.stop - rows.start]


def _stack(
    spec: TorchSpec, group: Sequence[MemberState], device: torch.device
) -> dict[str, Tensor]:
    lanes = [*group, *[group[0]] * (spec.stack_width - len(group))]
    return {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in lanes])).to(device)
        for name in group[0].tensors
    }


def _alone(
    spec: TorchSpec,
    members: Sequence[MemberState],
    voters: list[int],
    X: NDArray[np.float32],
    device: torch.device,
) -> Iterator[Block]:
    own = spec.network == "custom"
    module = prepare_module(blank_module(spec), spec, device)
    kept = kept_values(module) if own else {}
    blocks = _blocks(spec, X, device)
    for place in voters:
        if own and kept_values(module) != kept:  # what it wrote down is no other member's
            module = prepare_module(blank_module(spec), spec, device)
        tensors = {
            name: torch.from_numpy(np.array(array)).to(device)
            for name, array in members[place].tensors.items()
        }
        for number, block in enumerate(blocks):
            rows = _rows(number, spec, len(X))
            use_onednn()
            word = stream_seed(members[place].index, number)
            with own_streams(word) if own else nullcontext():
                scores = member_scores(spec, module, tensors, block)
            yield [place], rows, scores[None, : rows.stop - rows.start]


def votes_of(scores: Tensor) -> NDArray[np.int16]:
    """Return the first largest class per row; a row with a score that is NaN abstains."""
    best = scores.max(dim=-1)  # NaN wins every comparison, so it shows in the value
    votes = torch.where(best.values.isnan(), ABSTAIN, best.indices)
    return votes.to(torch.int16).cpu().numpy()
