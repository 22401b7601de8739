"""Scores and votes of finished members, streamed block by block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import ArrayEnsemble, Ensemble, Spec
from poisonproof.members.streams import stream_seed
from poisonproof.networks.batches import as_samples
from poisonproof.networks.device import deterministic, require_device, use_onednn
from poisonproof.networks.graphs import graph_scores, member_scores
from poisonproof.networks.modules import blank_module, kept_values, own_streams, prepare_module
from poisonproof.networks.specification import NetworkSpec
from poisonproof.networks.stacked import module_forward, perceptron_forward, stack_scores
from poisonproof.networks.state import MemberState
from poisonproof.progress import Progress, reporting

Block = tuple[list[int], slice, Tensor]
"""Positions of members, rows of the samples, and scores of shape (members, rows, C)."""


Stacks = dict[int, dict[str, Tensor]]
"""Weights of whole stacks on the device, by the first voter; filled as members are asked."""


def score_blocks(
    spec: NetworkSpec, members: Sequence[MemberState], X: NDArray[np.float32], stacks: Stacks
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
    spec: NetworkSpec, members: Sequence[MemberState], X: NDArray[np.float32], stacks: Stacks
) -> Iterator[Block]:
    device = require_device(spec)
    voters = [place for place, member in enumerate(members) if not member.abstains]
    if spec.execution == "fused":
        from poisonproof.networks.fused.trainer import fused_scores

        yield from fused_scores(spec, members, voters, X)
    elif spec.execution == "graph":
        yield from graph_scores(spec, members, voters, X, device)
    elif spec.execution == "single":
        yield from _alone(spec, members, voters, X, device)
    else:
        yield from _together(spec, members, voters, X, device, stacks)


def _blocks(spec: NetworkSpec, X: NDArray[np.float32], device: torch.device) -> list[Tensor]:
    blocks = []
    for start in range(0, len(X), spec.vote_rows):
        block = np.zeros((spec.vote_rows, *spec.input_shape), np.float32)
        part = X[start : start + spec.vote_rows]
        block[: len(part)] = part
        blocks.append(torch.from_numpy(block).to(device))
    return blocks


def _rows(number: int, spec: NetworkSpec, total: int) -> slice:
    start = number * spec.vote_rows
    return slice(start, min(start + spec.vote_rows, total))


def _together(
    spec: NetworkSpec,
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
    spec: NetworkSpec, group: Sequence[MemberState], device: torch.device
) -> dict[str, Tensor]:
    lanes = [*group, *[group[0]] * (spec.stack_width - len(group))]
    return {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in lanes])).to(device)
        for name in group[0].tensors
    }


def _alone(
    spec: NetworkSpec,
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


# What all ensembles of deep members have in common: they are asked in blocks and share a law.

Arrays = dict[str, NDArray[Any]]


class DeepMembers(ArrayEnsemble):
    """Deep members of one law, in the order of their partitions.

    Parameters
    ----------
    spec : Spec
        The law they were trained under; it also decides how they vote.
    members : sequence of MemberState
        One per partition.
    """

    def __init__(self, spec: Spec, members: Sequence[MemberState]) -> None:
        self.spec = spec
        self.members = list(members)

    @property
    @abstractmethod
    def schedule(self) -> NetworkSpec:
        """Shape and scale of the samples, and the label set."""

    @abstractmethod
    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        """Yield scores, some members on some rows at a time; abstaining members are left out."""

    @abstractmethod
    def _with(self, members: Sequence[MemberState]) -> Self:
        """Return other members of the same law."""

    def __len__(self) -> int:
        return len(self.members)

    def votes(
        self, X: Any, *, n_jobs: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k); scores are never kept."""
        samples = as_samples(X, self.schedule)
        votes = np.full((len(samples), len(self)), ABSTAIN, dtype=np.int16)
        with reporting(progress, len(self), "Voting") as listener:
            for places, rows, scores in self._blocks(samples):
                votes[rows, places] = votes_of(scores).T
                if rows.stop == len(samples):
                    listener.advance(len(places))
        return votes

    def scores(self, X: Any) -> NDArray[np.float32]:
        """Return every member's class probabilities, shape (n, k, C); NaN where it abstains."""
        samples = as_samples(X, self.schedule)
        out = np.full((len(samples), len(self), self.schedule.n_classes), np.nan, dtype=np.float32)
        for places, rows, scores in self._blocks(samples):
            soft = torch.softmax(scores.float(), dim=-1).cpu().numpy()
            out[rows, places] = soft.transpose(1, 0, 2)
        return out

    def digests(self) -> list[str]:
        """Return one digest per member: of its weights, normalisation and law."""
        law = self.spec.digest()[:16]
        return [f"{law}:{member.digest()}" for member in self.members]

    def failures(self) -> dict[int, str]:
        """Return why members with rows abstain."""
        return {
            place: member.failure
            for place, member in enumerate(self.members)
            if member.failure is not None
        }

    def replaced(self, which: Sequence[int], members: Ensemble) -> Self:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, type(self)) or members.spec != self.spec:
            raise InvalidInputError(
                "Deep members can only be replaced by members of the same specification."
            )
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return self._with(copy)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything as JSON values and arrays named ``member/tensor``."""
        meta = {
            "spec": self.spec.to_json(),
            "members": [{"index": m.index, "failure": m.failure} for m in self.members],
        }
        arrays = {
            f"{place}/{name}": np.asarray(array)
            for place, member in enumerate(self.members)
            for name, array in member.tensors.items()
        }
        return meta, arrays


def member_states(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[MemberState]:
    """Return the members that `DeepMembers.export` described; arrays are not copied."""
    tensors: list[Arrays] = [{} for _ in meta["members"]]
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        tensors[int(place)][name] = array
    return [
        MemberState(entry["index"], own, entry["failure"])
        for entry, own in zip(meta["members"], tensors, strict=True)
    ]


# The fitted deep members of one model.


class TorchEnsemble(DeepMembers):
    """Deep members of one specification, in the order of their partitions.

    Parameters
    ----------
    spec : NetworkSpec
        The law they were trained under; it also decides how they vote.
    members : sequence of MemberState
        One per partition.
    """

    family: ClassVar[str] = "torch"
    spec: NetworkSpec

    def __init__(self, spec: NetworkSpec, members: Sequence[MemberState]) -> None:
        super().__init__(spec, members)
        self._stacks: Stacks = {}

    @property
    def schedule(self) -> NetworkSpec:
        """The law itself."""
        return self.spec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        return score_blocks(self.spec, self.members, samples, self._stacks)

    def _with(self, members: Sequence[MemberState]) -> Self:
        return type(self)(self.spec, members)


def restore_members(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> TorchEnsemble:
    """Return the ensemble that `TorchEnsemble.export` described."""
    return TorchEnsemble(NetworkSpec.from_json(meta["spec"]), member_states(meta, arrays))
