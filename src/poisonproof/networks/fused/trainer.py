"""Members through the lanes of the NiN kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from poisonproof.networks.batches import (
    Lanes,
    MemberState,
    MemberTensors,
    Score,
    members_of,
    planned_steps,
    stacked_tensors,
)
from poisonproof.networks.fused.layout import NinLayout, from_tables, to_tables
from poisonproof.networks.fused.passes import NinStack
from poisonproof.networks.graphs import Recorder
from poisonproof.networks.modules import build, initialise
from poisonproof.networks.specification import NetworkSpec


class FusedTrainer:
    """Trains groups of at most `stack_width` members in one workspace."""

    def __init__(self, spec: NetworkSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.device = torch.device("cuda")
        work = self.work = NinStack(NinLayout(spec), self.device)
        work.counts.fill_(1)

        def step() -> None:
            work.forward(work.images, train=True)
            work.backward()

        self._recorder = Recorder(self.device)
        self._step = self._recorder.record(step)

    def submit(self, group: Sequence[MemberTensors]) -> Callable[[], list[MemberState]]:
        """Queue the training of one group; the result waits for it and returns its members."""
        work, spec = self.work, self.spec
        lanes = Lanes(spec, group, self.seed, self.device)
        _load(work, initialise(build(spec), lanes.stream))
        work.input_mean.copy_(lanes.mean.flatten(1))
        work.input_std.copy_(lanes.std.flatten(1))
        for step in planned_steps(spec, lanes.stream, lanes.sizes):
            images, targets = lanes.raw(step, spec.batch_size)
            work.images.copy_(images)
            work.targets[:, :, : spec.n_classes].copy_(targets)
            work.counts.copy_(step.counts)
            work.rates.copy_(step.rates)
            self._step()
        return self._result(group)

    def _result(self, group: Sequence[MemberTensors]) -> Callable[[], list[MemberState]]:
        """Queue the copy to the host, which unpacks it while the device trains the next group."""
        work, norm = self.work, self.work.norm
        fine = (work.healthy == 1) & torch.isfinite(work.parameters).all(dim=1)
        for value in (*norm["run_mean"], *norm["run_var"]):
            fine &= torch.isfinite(value).all(dim=1)
        state = from_tables(work.layout, work.parameters, norm["run_mean"], norm["run_var"])
        state["healthy"] = fine
        home = {
            name: torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(
                value, non_blocking=True
            )
            for name, value in state.items()
        }
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()

        def collect() -> list[MemberState]:
            arrived.synchronize()
            host = {name: value.numpy() for name, value in home.items()}
            healthy = host.pop("healthy")
            return members_of(group, host, healthy, checked=True)

        return collect


def _load(work: NinStack, state: dict[str, Tensor]) -> None:
    """Put first (or finished) weights into the lanes and clear what the last members left."""
    table, means, variances = to_tables(work.layout, state)
    work.parameters.copy_(table)
    work.low.copy_(table[:, : work.layout.convolution_parameters])
    work.velocity.zero_()
    work.gradients.zero_()
    work.healthy.fill_(1)
    for i, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        work.norm["run_mean"][i][:, : mean.shape[1]].copy_(mean)
        work.norm["run_var"][i][:, : variance.shape[1]].copy_(variance)


def _use_running_statistics(work: NinStack) -> None:
    norm = work.norm
    for unit in work.layout.units:
        i, width = unit.number, unit.cout
        gamma, beta = work.table(f"gamma{i}"), work.table(f"beta{i}")
        scale = gamma * torch.rsqrt(norm["run_var"][i][:, :width] + 1e-5)
        norm["scale"][i][:, :width].copy_(scale)
        norm["shift"][i][:, :width].copy_(beta - norm["run_mean"][i][:, :width] * scale)


class FusedVoter:
    """A workspace without gradients, and the replayed forward pass of all its lanes."""

    def __init__(self, spec: NetworkSpec) -> None:
        device = torch.device("cuda")
        work = self._work = NinStack(NinLayout(spec), device, train=False)
        block = self._block = torch.zeros(1, spec.batch_size, *spec.input_shape, device=device)
        work.counts.fill_(1)
        self._recorder = Recorder(device)
        # What is recorded refers to no `self`: the workspace goes when its voter goes.
        self._forward = self._recorder.record(lambda: work.forward(block, train=False))

    def load(self, start: int, lanes: list[MemberState]) -> Score:
        """Let members vote, one per lane."""
        work = self._work
        state = stacked_tensors(lanes, work.device)
        work.input_mean.copy_(state.pop("normalise.mean").flatten(1))
        work.input_std.copy_(state.pop("normalise.std").flatten(1))
        _load(work, state)
        _use_running_statistics(work)
        return self._scores

    def _scores(self, number: int, block: Tensor, count: int) -> Tensor:
        self._block[0].copy_(block)
        self._work.counts.fill_(count)
        self._forward()
        return self._work.scores[:, :, : self._work.layout.spec.n_classes]
