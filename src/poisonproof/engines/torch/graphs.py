"""Several members at once, each alone in its launches, replayed from CUDA graphs.

Guarantee
---------
A stack of one, several times over. A track holds one member: its weights, its rows and its
random stream. Its launches have the member's own batch widths, as in ``"single"``, and read
nothing of another track. How many tracks there are, and who follows whom on a track, only
schedules: a member is copied in whole, and nothing of the one before is left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.batches import Step, planned_epochs
from poisonproof.engines.torch.capture import Recorder, Work
from poisonproof.engines.torch.device import autocast
from poisonproof.engines.torch.flat import FlatModule, make_rule
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.losses import lane_losses
from poisonproof.engines.torch.modules import first_module, ordered, prepare_module
from poisonproof.engines.torch.own_modules import (
    blank_module,
    changed_names,
    draws,
    kept_values,
    own_streams,
)
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.settings import use_onednn
from poisonproof.engines.torch.state import MemberState, failed, finished, host_tensors
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["Track", "graph_scores", "train_on_tracks"]

Training = Generator[None, None, MemberState]
"""The training of one member, one epoch per step; returns the member."""


def train_on_tracks(
    spec: TorchSpec, members: Iterator[MemberRows], seed: int, device: torch.device
) -> Iterator[tuple[MemberRows, MemberState]]:
    """Yield members as they finish; at most `stack_width` are on their way.

    The host queues one epoch of every member in turn and seldom waits, so that the device always
    has work of several members at once.
    """
    tracks: list[Track] = []
    idle: list[Track] = []
    running: list[tuple[Track, MemberRows, Training]] = []
    try:
        while True:
            while len(running) < spec.stack_width and (rows := next(members, None)) is not None:
                if not idle:
                    tracks.append(Track(spec, seed, device))
                    idle.append(tracks[-1])
                track = idle.pop()
                running.append((track, rows, track.train(rows)))
            if not running:
                return
            for entry in list(running):
                track, rows, training = entry
                try:
                    next(training)
                except StopIteration as end:
                    running.remove(entry)
                    idle.append(track)
                    yield rows, end.value
    finally:
        for track in tracks:
            track.close()


class Track:
    """One stream with a network on it, through which members pass one after the other.

    Parameters
    ----------
    spec : TorchSpec
        The law of the members.
    seed : int
        Seed of the ensemble.
    device : torch.device
        Where to compute.
    """

    def __init__(self, spec: TorchSpec, seed: int, device: torch.device) -> None:
        self.spec, self.seed, self.device = spec, seed, device
        self.flat = FlatModule(prepare_module(blank_module(spec), spec, device))
        self.rule = make_rule(spec, self.flat.parameters)
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

    def train(self, rows: MemberRows) -> Training:
        """Train one member; what its own rows make the network raise is its abstention."""
        try:
            return (yield from self._train(rows))
        except Exception as error:
            return failed(self.spec, rows.index, error)

    def _train(self, rows: MemberRows) -> Training:
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
            self.flat.load(first_module(self.spec, lane.stream).state_dict())
        for tensor in self.rule.state:
            tensor.zero_()
        self.healthy.fill_(True)

    @torch.no_grad()
    def _run(self, lane: Lanes, epoch: Step, steps: Sequence[Work]) -> None:
        """Queue one epoch: all its images at once, then step after step."""
        use_onednn()
        x, targets = lane.batch(epoch, self.spec.batch_size)
        for t, (width, step) in enumerate(zip(epoch.sizes, steps, strict=True)):
            self.x[:width].copy_(x[t, :width])
            self.targets[0, :width].copy_(targets[t, :width])
            self.rate.copy_(epoch.rates[t : t + 1])
            step()

    def _end(self, rows: MemberRows) -> MemberState:
        if not (bool(self.healthy) or self.spec.on_nan == "last_finite"):
            return finished(rows.index, {}, diverged=True)
        state = self.flat.module.state_dict()
        return finished(rows.index, host_tensors(state, rows), diverged=False)

    def _step_of(self, width: int) -> Work:
        """Return the step for batches of one width; recorded when it is first needed."""
        if width not in self._steps:
            count = torch.full((1,), width, device=self.device)
            self._steps[width] = self._recorder.record(lambda: self._step(width, count))
        return self._steps[width]

    @torch.enable_grad()
    def _step(self, width: int, count: Tensor) -> None:
        spec, flat = self.spec, self.flat
        keep = spec.on_nan == "last_finite"
        everything = [flat.parameters, *self.rule.state, *flat.module.buffers()] if keep else []
        before = [tensor.clone() for tensor in everything]
        flat.module.train()
        with autocast(spec):
            logits = flat.module(self.x[:width])
        loss = lane_losses(logits[None], self.targets[:, :width], count).sum()
        flat.collect(loss)
        self.healthy.logical_and_(torch.isfinite(loss.detach()))
        with torch.no_grad():
            self.rule.step(flat.parameters, flat.gradients, self.rate)
            for tensor in everything:
                self.healthy.logical_and_(torch.isfinite(tensor).all())
            for tensor, old in zip(everything, before, strict=True):
                tensor.copy_(torch.where(self.healthy, tensor, old))

    def _try(self) -> None:
        """Refuse a user's module that cannot be replayed, before any member is trained."""
        module, width = self.flat.module, min(2, self.spec.batch_size)
        with self._recorder.here(), own_streams(0):
            # Of zeros a module may write zeros down. Drawn by the host: the device's generator may
            # have been left in the middle of a recording that failed.
            self.x.copy_(torch.rand(self.x.shape))
            kept, before = kept_values(module), draws(self.device)
            try:
                self._step_of(width)()
                with torch.no_grad():
                    module.eval()(self.x[:width].clone())
            except Exception as error:
                raise self._refusal(f"{type(error).__name__}: {error}") from error
            after = draws(self.device)
        if before != after:
            raise self._refusal("it draws random numbers, which members on their way would share")
        if changed := changed_names(kept, kept_values(module)):
            raise self._refusal(
                f"it writes to {changed}, which is not in its state_dict, so one member would"
                " leave it to the next"
            )

    def _refusal(self, reason: str) -> InvalidInputError:
        return InvalidInputError(
            f"The module of {self.spec.factory} cannot be replayed from a graph: {reason}. Use"
            " execution='single'."
        )


@torch.no_grad()
def graph_scores(
    spec: TorchSpec,
    members: Sequence[MemberState],
    voters: list[int],
    X: NDArray[np.float32],
    device: torch.device,
) -> Iterator[tuple[list[int], slice, Tensor]]:
    """Yield the scores of one member on one block of rows at a time."""
    module = prepare_module(blank_module(spec), spec, device).eval()
    samples = torch.from_numpy(X).to(device)
    block = torch.zeros(spec.vote_rows, *spec.input_shape, device=device)
    out = torch.zeros(spec.vote_rows, spec.n_classes, device=device)
    tensors: dict[str, Tensor] = {}

    def ask() -> None:
        x = (block - tensors["normalise.mean"]) / tensors["normalise.std"]
        with autocast(spec):
            out.copy_(module(ordered(x)))

    recorder, forward = Recorder(device), None
    try:
        for place in voters:
            for name, array in members[place].tensors.items():
                value = torch.from_numpy(np.array(array))
                if name in tensors:
                    tensors[name].copy_(value)
                else:  # a copy on a CPU, too: the next member is written into it
                    tensors[name] = value.to(device, copy=True)
            module.load_state_dict(
                {k: v for k, v in tensors.items() if not k.startswith("normalise.")}
            )
            if forward is None:
                forward = recorder.record(ask)
            for first in range(0, len(X), spec.vote_rows):
                rows = slice(first, min(first + spec.vote_rows, len(X)))
                count = rows.stop - rows.start
                block[:count].copy_(samples[rows])
                block[count:].zero_()
                use_onednn()
                forward()
                yield [place], rows, out[None, :count]
    finally:
        recorder.close()
