"""The fitted networks of one model: their scores and votes, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import ArrayEnsemble, Content, Ensemble, Spec
from poisonproof.networks.batches import MemberState, Score, as_samples, stacked_tensors
from poisonproof.networks.device import deterministic, require_device, use_onednn
from poisonproof.networks.graphs import NetworkVoter
from poisonproof.networks.lanes import stack_scores
from poisonproof.networks.specification import NetworkSpec
from poisonproof.progress import Progress, reporting

Block = tuple[list[int], slice, Tensor]
"""Positions of members, rows of the samples, and scores of shape (members, rows, C)."""

Stacks = dict[int, dict[str, Tensor]]
"""Weights of whole stacks on the device, by the first voter; kept from vote to vote."""

Load = Callable[[int, list[MemberState]], Score]
"""From the first voter and the members of a launch to their scores."""


def score_blocks(
    spec: NetworkSpec, members: Sequence[MemberState], X: NDArray[np.float32], stacks: Stacks
) -> Iterator[Block]:
    """Yield scores, some members on some rows at a time; abstaining members are left out."""
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
    device = torch.device(spec.device)
    voters = [place for place, member in enumerate(members) if not member.abstains]
    if not voters or not len(X):
        return
    # Every launch has the shapes of the specification: the last stack repeats its first member, and
    # zeros fill the last block up.
    width = 1 if spec.is_alone else spec.stack_width
    height = spec.batch_size if spec.execution == "fused" else spec.vote_rows
    blocks = []
    for first in range(0, len(X), height):
        filled = np.zeros((height, *spec.input_shape), np.float32)
        part = X[first : first + height]
        filled[: len(part)] = part
        blocks.append(torch.from_numpy(filled).to(device))
    with _voting(spec, device, stacks) as load:
        for start in range(0, len(voters), width):
            group = voters[start : start + width]
            lanes = [members[i] for i in group]
            score = load(start, [*lanes, *[lanes[0]] * (width - len(lanes))])
            for number, block in enumerate(blocks):
                rows = slice(number * height, min((number + 1) * height, len(X)))
                count = rows.stop - rows.start
                use_onednn()
                yield group, rows, score(number, block, count)[: len(group), :count]


@contextmanager
def _voting(spec: NetworkSpec, device: torch.device, stacks: Stacks) -> Iterator[Load]:
    """Provide what computes scores in the way of the specification."""
    if spec.execution == "fused":
        from poisonproof.networks.fused.trainer import FusedVoter

        yield FusedVoter(spec).load
    elif spec.execution == "stacked":

        def load(start: int, lanes: list[MemberState]) -> Score:
            if start not in stacks:
                stacks[start] = stacked_tensors(lanes, device)
            return lambda number, block, count: stack_scores(spec, stacks[start], block)

        yield load
    else:
        with closing(NetworkVoter(spec, device)) as voter:
            yield voter.load


def votes_of(scores: Tensor) -> NDArray[np.int16]:
    """Return the first largest class per row; a row with a score that is NaN abstains."""
    best = scores.max(dim=-1)  # NaN wins every comparison, so it shows in the value
    votes = torch.where(best.values.isnan(), ABSTAIN, best.indices)
    return votes.to(torch.int16).cpu().numpy()


class TorchEnsemble(ArrayEnsemble):
    """Networks trained under one specification.

    Parameters
    ----------
    spec : Spec
        How they were trained, and how they vote.
    members : sequence of MemberState
        One per partition, in order.
    """

    family: ClassVar[str] = "torch"

    def __init__(self, spec: Spec, members: Sequence[MemberState]) -> None:
        self.spec = spec
        self.members = list(members)
        self._stacks: Stacks = {}

    @property
    def schedule(self) -> NetworkSpec:
        """Shape and scale of the samples, and the label set."""
        assert isinstance(self.spec, NetworkSpec)
        return self.spec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        """Yield scores, some members on some rows at a time; abstaining members are left out."""
        return score_blocks(self.schedule, self.members, samples, self._stacks)

    def _with(self, members: Sequence[MemberState]) -> Self:
        """Return other members of the same specification."""
        return type(self)(self.spec, members)

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

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members: of weights, normalisation and specification."""
        spec = self.spec.digest()[:16]
        return [f"{spec}:{self.members[index].digest()}" for index in which]

    def failures(self) -> dict[int, str]:
        """Return why members with rows abstain."""
        return {
            place: member.failure
            for place, member in enumerate(self.members)
            if member.failure is not None
        }

    def part(self, which: Sequence[int]) -> Self:
        """Return some of the members."""
        return self._with([self.members[index] for index in which])

    def replaced(self, which: Sequence[int], members: Ensemble) -> Self:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, type(self)) or members.spec != self.spec:
            raise InvalidInputError(
                "Networks can only be replaced by networks of the same specification."
            )
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return self._with(copy)

    def export(self) -> tuple[dict[str, Any], list[Content]]:
        """Return what members share and what each consists of, for `restore_members`."""
        contents: list[Content] = [
            (
                {"index": member.index, "failure": member.failure},
                {name: np.asarray(array) for name, array in member.tensors.items()},
            )
            for member in self.members
        ]
        return {"spec": self.spec.to_json()}, contents


def restore_members(shared: Mapping[str, Any], contents: Sequence[Content]) -> TorchEnsemble:
    """Return the ensemble that `TorchEnsemble.export` described; arrays are not copied."""
    members = [
        MemberState(about["index"], dict(tensors), about["failure"]) for about, tensors in contents
    ]
    return TorchEnsemble(NetworkSpec.from_json(shared["spec"]), members)
