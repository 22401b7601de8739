"""Members through the lanes of the NiN kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.networks.batches import Lanes, MemberRows, planned_steps
from poisonproof.networks.fused.layout import Layout, from_tables, to_tables
from poisonproof.networks.fused.passes import Backward, Forward, Workspace
from poisonproof.networks.graphs import nothing_collected
from poisonproof.networks.modules import build, initialise
from poisonproof.networks.specification import NetworkSpec
from poisonproof.networks.state import MemberState, finished


def _captured(work: Callable[[], None]) -> Callable[[], None]:
    """Compile by running once, then record the launches, so that a step costs one call."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with nothing_collected(), torch.cuda.graph(graph):
        work()
    return graph.replay


class FusedTrainer:
    """Trains groups of at most `stack_width` members in one workspace.

    Parameters
    ----------
    spec : NetworkSpec
        The law of the members.
    seed : int
        Seed of the ensemble.
    """

    def __init__(self, spec: NetworkSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.device = torch.device("cuda")
        self.work = Workspace(Layout(spec), self.device)
        forward, backward = Forward(self.work), Backward(self.work)
        self.work.counts.fill_(1)

        def step() -> None:
            forward.run(self.work.images, train=True)
            backward.run()

        self._step = _captured(step)

    def submit(self, group: Sequence[MemberRows]) -> Callable[[], list[MemberState]]:
        """Queue the training of one group; the result waits for it and returns its members.

        Lanes without a member hold no rows and are never stepped.
        """
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

    def _result(self, group: Sequence[MemberRows]) -> Callable[[], list[MemberState]]:
        """Queue the way home. The host unpacks it while the device trains the next group."""
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
            return [
                finished(
                    rows.index,
                    {
                        **{name: np.array(array[lane]) for name, array in host.items()},
                        "normalise.mean": rows.mean.numpy(),
                        "normalise.std": rows.std.numpy(),
                    },
                    diverged=not healthy[lane],
                    checked=True,
                )
                for lane, rows in enumerate(group)
            ]

        return collect


def _load(work: Workspace, state: dict[str, Tensor]) -> None:
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


def _use_running_statistics(work: Workspace) -> None:
    norm = work.norm
    for unit in work.layout.units:
        i, width = unit.number, unit.cout
        gamma, beta = work.table(f"gamma{i}"), work.table(f"beta{i}")
        scale = gamma * torch.rsqrt(norm["run_var"][i][:, :width] + 1e-5)
        norm["scale"][i][:, :width].copy_(scale)
        norm["shift"][i][:, :width].copy_(beta - norm["run_mean"][i][:, :width] * scale)


def fused_scores(
    spec: NetworkSpec,
    members: Sequence[MemberState],
    voters: list[int],
    X: NDArray[np.float32],
) -> Iterator[tuple[list[int], slice, Tensor]]:
    """Yield scores of a stack of members on one block of rows at a time."""
    if not voters or not len(X):
        return
    device = torch.device("cuda")
    layout = Layout(spec)
    work = Workspace(layout, device, train=False)
    passes = Forward(work)
    samples = torch.from_numpy(X).to(device)
    block = torch.zeros(1, layout.rows, *spec.input_shape, device=device)
    work.counts.fill_(1)
    forward = _captured(lambda: passes.run(block, train=False))
    for start in range(0, len(voters), spec.stack_width):
        group = voters[start : start + spec.stack_width]
        lanes = group + [group[0]] * (spec.stack_width - len(group))
        _load_members(work, [members[i] for i in lanes])
        for first in range(0, len(X), layout.rows):
            rows = slice(first, min(first + layout.rows, len(X)))
            count = rows.stop - rows.start
            block[0, :count].copy_(samples[rows])
            work.counts.fill_(count)
            forward()
            yield group, rows, work.scores[: len(group), :count, : spec.n_classes]


def _load_members(work: Workspace, members: Sequence[MemberState]) -> None:
    tensors = {
        name: torch.from_numpy(np.stack([member.tensors[name] for member in members]))
        for name in members[0].tensors
    }
    state = {name: value.to(work.device) for name, value in tensors.items()}
    work.input_mean.copy_(state.pop("normalise.mean").flatten(1))
    work.input_std.copy_(state.pop("normalise.std").flatten(1))
    _load(work, state)
    _use_running_statistics(work)
