"""Members alone in their launches: an ordinary training loop, or one replayed from CUDA graphs.

Guarantee
---------
A stack of one. Shapes follow from the specification and the member's own partition, and no other
member's data is in reach. Workers only schedule.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.streams import stream_seed
from poisonproof.networks.batches import (
    Lanes,
    MemberState,
    MemberTensors,
    Score,
    TrainingStep,
    failed,
    lane_losses,
    member_of,
    planned_epochs,
    planned_steps,
)
from poisonproof.networks.device import autocast, use_onednn
from poisonproof.networks.modules import (
    blank_module,
    first_module,
    ordered,
    own_streams,
    prepare_module,
    require_repeatable,
)
from poisonproof.networks.specification import NetworkSpec

if TYPE_CHECKING:
    from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec


def train_member(
    spec: NetworkSpec, rows: MemberTensors, seed: int, device: torch.device
) -> MemberState:
    """Train one member from its own rows and its own stream."""
    lane = Lanes(spec, [rows], seed, device)
    module = prepare_module(first_module(spec, lane.stream), spec, device)
    nesterov = spec.nesterov and spec.momentum > 0
    optimizer = torch.optim.SGD(
        module.parameters(),
        lr=spec.learning_rate,
        momentum=spec.momentum,
        nesterov=nesterov,
        weight_decay=spec.weight_decay,
    )
    for step in planned_steps(spec, lane.stream, lane.sizes):
        # A stack of one has no padding: the batch is as wide as the member's own rows make it.
        x, targets = lane.batch(step, step.sizes[0])
        optimizer.param_groups[0]["lr"] = float(step.rates[0])
        module.train()
        with autocast(spec):
            logits = module(ordered(x[0]))
        loss = lane_losses(logits[None], targets, step.counts).sum()
        if not torch.isfinite(loss):
            return member_of(rows, None)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return member_of(rows, module.state_dict())


# Work that is repeated often: recorded once as a CUDA graph, replayed with one call. On a CPU the
# work itself is called; everything around it is the same code on both devices.

Work = Callable[[], None]

_free: list[torch.cuda.Stream] = []
"""Streams whose recorders were closed. Libraries keep a workspace for every stream they have seen,
so that new streams for every training would let memory grow."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect no garbage: a graph that dies while another is recorded spoils the recording."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Recorder:
    """A stream of the device and the graphs recorded on it."""

    def __init__(self, device: torch.device) -> None:
        # A graph holds addresses only: what the work refers to has to live on here.
        self._kept: list[Work] = []
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = _free.pop() if _free else torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # What this waits for: buffers that were filled on the caller's stream.
            self._stream.wait_stream(torch.cuda.current_stream())
            # Graphs of one stream never run at the same time, so they may share their memory.
            self._pool = torch.cuda.graph_pool_handle()

    def here(self) -> AbstractContextManager[object]:
        """Return a context in which work goes to this stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def record(self, work: Work) -> Work:
        """Return a function that repeats `work` while the recorder lives; on CUDA it runs once now.

        The work must read and write tensors that stay in place, and must not wait for the device.
        """
        if self._stream is None:
            return work
        self._stream.wait_stream(torch.cuda.current_stream())
        # The outer context gives the caller's stream back even if the recording fails.
        with self.here(), nothing_collected():
            work()  # libraries choose kernels and set themselves up; none of it may be recorded
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                work()
        self._kept.append(work)
        return graph.replay

    def close(self) -> None:
        """Forget what was recorded, and leave the stream to the next recorder."""
        self._kept.clear()
        if self._stream is not None:
            _free.append(self._stream)
            self._stream = None


# A network whose parameters lie in one flat tensor, and update rules for such tensors.
#
# An update is then a handful of operations, however many layers there are, and a new member comes
# in by copying. Nothing here waits for the device, so a step can be recorded.


class FlatModule:
    """A module on its device, with parameters and gradients in two flat tensors.

    Every parameter begins at a multiple of `alignment` values; between them lie zeros. Parameters
    keep the memory order they have; with `channels_last`, all kernels of convolutions get that one.
    """

    def __init__(
        self, module: nn.Module, *, alignment: int = 64, channels_last: bool = False
    ) -> None:
        self.module = module
        self._own = [p for p in module.parameters() if p.requires_grad]
        wrong = {str(p.dtype) for p in self._own} - {"torch.float32"}
        if wrong or not self._own:
            raise InvalidInputError(
                "Members in graphs need parameters of dtype float32 that are trained, got"
                f" {', '.join(sorted(wrong)) or 'none'}. Use execution='single'."
            )
        starts, size = [], 0
        for parameter in self._own:
            starts.append(size)
            size += -(-parameter.numel() // alignment) * alignment
        device = self._own[0].device
        self.parameters = torch.zeros(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        self._places: list[Tensor] = []
        for parameter, start in zip(self._own, starts, strict=True):
            shape, stride = parameter.size(), parameter.stride()
            if channels_last and len(shape) == 4:
                _, channels, height, width = shape
                stride = (height * width * channels, 1, width * channels, channels)
            view = self.parameters.as_strided(shape, stride, start)
            view.copy_(parameter.detach())
            parameter.data = view
            self._places.append(self.gradients.as_strided(shape, stride, start))

    def collect(self, loss: Tensor) -> None:
        """Fill `gradients` with those of a loss."""
        found = torch.autograd.grad(loss, self._own)
        torch._foreach_copy_(self._places, list(found))


class SGD:
    """Momentum, Nesterov's if wished, with weight decay."""

    def __init__(self, spec: NetworkSpec | PretrainSpec, parameters: Tensor) -> None:
        self.spec = spec
        self.velocity = torch.zeros_like(parameters)
        self.state = [self.velocity]

    def step(self, parameters: Tensor, gradients: Tensor, rate: Tensor) -> None:
        """Move the parameters."""
        spec, velocity = self.spec, self.velocity
        if spec.weight_decay:
            gradients.add_(parameters, alpha=spec.weight_decay)
        self._accelerate(gradients)
        ahead = gradients.add_(velocity, alpha=spec.momentum) if spec.nesterov else velocity
        parameters.addcmul_(ahead, rate, value=-1.0)

    def _accelerate(self, gradients: Tensor) -> None:
        torch.add(gradients, self.velocity, alpha=self.spec.momentum, out=self.velocity)


class PretrainSGD(SGD):
    """The same for maps learned without labels, whose momentum is rounded once more."""

    def step_size(self, rate: float, done: int) -> float:
        """Return the factor of the step after `done` steps, from the planned rate."""
        return rate

    def _accelerate(self, gradients: Tensor) -> None:
        self.velocity.mul_(self.spec.momentum).add_(gradients)


# Several members at once, each on a track with its weights, rows and random stream. Launches have
# the member's own batch widths and read nothing of another track. How many tracks there are, and
# who follows whom, only schedules: a member is copied in whole, nothing of the last one is left.

Training = Generator[None, None, MemberState]
"""The training of one member, one epoch per step; returns the member."""


def train_on_tracks(
    spec: NetworkSpec, members: Iterator[MemberTensors], seed: int, device: torch.device
) -> Iterator[MemberState]:
    """Yield members as they finish; the host queues an epoch of each of `stack_width` in turn."""
    idle: list[Track] = []
    running: dict[Track, Training] = {}
    try:
        while True:
            while len(running) < spec.stack_width and (rows := next(members, None)) is not None:
                track = idle.pop() if idle else Track(spec, seed, device)
                running[track] = track.train(rows)
            if not running:
                return
            for track, training in list(running.items()):
                try:
                    next(training)
                except StopIteration as end:
                    del running[track]
                    idle.append(track)
                    yield end.value
    finally:
        for track in (*idle, *running):
            track.close()


class Track:
    """One stream with a network on it, through which members pass one after the other."""

    def __init__(self, spec: NetworkSpec, seed: int, device: torch.device) -> None:
        self.spec, self.seed, self.device = spec, seed, device
        self.flat = FlatModule(prepare_module(blank_module(spec), spec, device))
        self.rule = SGD(spec, self.flat.parameters)
        shape = (spec.batch_size, *spec.input_shape)
        self.x = ordered(torch.zeros(shape, device=device))
        self.targets = torch.zeros(1, spec.batch_size, spec.n_classes, device=device)
        self.rate = torch.zeros(1, device=device)
        self.healthy = torch.ones((), dtype=torch.bool, device=device)
        self._recorder = Recorder(device)
        self._steps: dict[int, Work] = {}
        if spec.network == "custom":
            self._try()

    def close(self) -> None:
        """Forget all graphs, and with them their memory on the device."""
        self._steps.clear()
        self._recorder.close()

    def train(self, rows: MemberTensors) -> Training:
        """Train one member; what its own rows make the network raise is its abstention."""
        try:
            return (yield from self._train(rows))
        except Exception as error:
            return failed(self.spec, rows.index, error)

    def _train(self, rows: MemberTensors) -> Training:
        with self._recorder.here():
            lane = Lanes(self.spec, [rows], self.seed, self.device)
            epochs = planned_epochs(self.spec, lane.stream, len(rows))
            epoch = next(epochs, None)
            steps = [self._step_of(width) for width in epoch.sizes] if epoch else []
            self._begin(lane)
        while epoch is not None:
            # Never across the `yield`: others must not find themselves on this stream.
            with self._recorder.here():
                self._run(lane, epoch, steps)
                epoch = next(epochs, None)
            yield
        with self._recorder.here():
            return self._end(rows)

    def _begin(self, lane: Lanes) -> None:
        """Copy a new member in and clear what the last one left."""
        with own_streams(0):  # seeded anew from the member's own stream
            self.flat.module.load_state_dict(first_module(self.spec, lane.stream).state_dict())
        for tensor in self.rule.state:
            tensor.zero_()
        self.healthy.fill_(True)

    @torch.no_grad()
    def _run(self, lane: Lanes, epoch: TrainingStep, steps: Sequence[Work]) -> None:
        """Queue one epoch: all its images at once, then step after step."""
        use_onednn()
        x, targets = lane.batch(epoch, self.spec.batch_size)
        for t, (width, step) in enumerate(zip(epoch.sizes, steps, strict=True)):
            self.x[:width].copy_(x[t, :width])
            self.targets[0, :width].copy_(targets[t, :width])
            self.rate.copy_(epoch.rates[t : t + 1])
            step()

    def _end(self, rows: MemberTensors) -> MemberState:
        return member_of(rows, self.flat.module.state_dict() if bool(self.healthy) else None)

    def _step_of(self, width: int) -> Work:
        """Return the step for batches of one width; recorded when it is first needed."""
        if width not in self._steps:
            count = torch.full((1,), width, device=self.device)
            self._steps[width] = self._recorder.record(lambda: self._step(width, count))
        return self._steps[width]

    @torch.enable_grad()
    def _step(self, width: int, count: Tensor) -> None:
        flat = self.flat
        flat.module.train()
        with autocast(self.spec):
            logits = flat.module(self.x[:width])
        loss = lane_losses(logits[None], self.targets[:, :width], count).sum()
        flat.collect(loss)
        self.healthy.logical_and_(torch.isfinite(loss.detach()))
        with torch.no_grad():
            self.rule.step(flat.parameters, flat.gradients, self.rate)

    def _try(self) -> None:
        """Refuse a user's module that cannot be replayed, before any member is trained."""
        module, width = self.flat.module, min(2, self.spec.batch_size)

        def run() -> None:
            self._step_of(width)()
            with torch.no_grad():
                module.eval()(self.x[:width].clone())

        with self._recorder.here(), own_streams(0):
            # Of zeros a module may write zeros down. Drawn by the host: the device's generator may
            # have been left in the middle of a recording that failed.
            self.x.copy_(torch.rand(self.x.shape))
            require_repeatable(self.spec, module, self.device, run)


class NetworkVoter:
    """A network into which members are copied, one after the other; recorded for "graph"."""

    def __init__(self, spec: NetworkSpec, device: torch.device) -> None:
        self._spec, self._device = spec, device
        # A user's module may draw, and write to what it keeps, unless it was tried before training.
        self._free = spec.network == "custom" and spec.execution == "single"
        self._module = self._blank()
        self._block = torch.zeros(spec.vote_rows, *spec.input_shape, device=device)
        self._out = torch.zeros(spec.vote_rows, spec.n_classes, device=device)
        self._recorder = Recorder(device if spec.execution == "graph" else torch.device("cpu"))
        self._forward: Work | None = None

    def _blank(self) -> nn.Module:
        return prepare_module(blank_module(self._spec), self._spec, self._device).eval()

    def close(self) -> None:
        """Forget the graph."""
        self._recorder.close()

    @torch.no_grad()
    def load(self, start: int, lanes: list[MemberState]) -> Score:
        """Let the one member of `lanes` vote."""
        (self._member,) = lanes
        state = {name: torch.from_numpy(np.array(v)) for name, v in self._member.tensors.items()}
        moments = torch.stack([state.pop("normalise.mean"), state.pop("normalise.std")])
        if self._free:
            self._module = self._blank()
        self._module.load_state_dict(state)
        self._state = state
        if self._forward is None:
            self._moments = moments.to(self._device)
            self._forward = self._recorder.record(self._vote)
        else:
            self._moments.copy_(moments)
        return self._scores

    def _scores(self, number: int, block: Tensor, count: int) -> Tensor:
        assert self._forward is not None
        self._block.copy_(block)
        if self._free:
            self._module.load_state_dict(self._state)
            with own_streams(stream_seed(self._member.index, number)):
                self._forward()
        else:
            self._forward()
        return self._out[None]

    @torch.no_grad()
    def _vote(self) -> None:
        mean, std = self._moments
        x = (self._block - mean) / std
        with autocast(self._spec):
            self._out.copy_(self._module(ordered(x)))
