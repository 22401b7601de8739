"""From images to a frozen map, without labels: steps, epochs, checkpoints, stopping."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks.augmentation import Purpose, Stream
from poisonproof.networks.device import deterministic, fingerprint, require_device
from poisonproof.networks.graphs import FlatModule, Recorder
from poisonproof.networks.modules import initialise
from poisonproof.networks.pretraining.frozen import FrozenNetwork, RunFolder, Tensors
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.tasks import Task, make_task, samples_digest, sorted_images
from poisonproof.progress import Progress, Silent, reporting


def _repeatable_compiler() -> None:
    """Forbid the compiler to choose kernels by timing them: the load would choose the bits."""
    from torch._inductor import config  # there is no public switch

    settings: Any = config
    if hasattr(settings, "deterministic"):
        settings.deterministic = True
    settings.triton.autotune_pointwise = False
    settings.max_autotune = False
    settings.coordinate_descent_tuning = False


@dataclass(frozen=True)
class EpochReport:
    """Results of one epoch, counted from 1: mean loss, and the share of tasks done correctly."""

    epoch: int
    loss: float
    share: float
    images_per_second: float


Watch = Callable[[EpochReport, Callable[[], FrozenNetwork]], None]
"""Called after every epoch, with a function that returns a copy of the map."""


@dataclass(frozen=True)
class RunLimits:
    """Rules for saving and stopping; none of them changes a bit of the result."""

    every: int = 10  # epochs between two checkpoints
    deadline: float | None = None  # value of `time.monotonic` at which to save and stop
    stop_after: int | None = None  # epochs after which to save and stop, as if killed

    def reached(self, done: int) -> bool:
        """Return whether to stop after `done` epochs."""
        late = self.deadline is not None and time.monotonic() > self.deadline
        return late or (self.stop_after is not None and done >= self.stop_after)


class Run:
    """The training of a network on sorted images; `freeze` turns weights into the map."""

    def __init__(
        self,
        task: Task,
        images: NDArray[np.uint8],
        device: torch.device,
        freeze: Callable[[Tensors, list[list[float]]], FrozenNetwork],
        start: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.task, self.spec, self.device, self._freeze = task, task.spec, device, freeze
        self.task.pixels.to(device)
        self.stream = Stream(self.spec.seed, torch.zeros(1, dtype=torch.int64, device=device))
        module = task.module
        first = initialise(module, self.stream)
        module.load_state_dict({name: value[0] for name, value in first.items()})
        module.to(device)
        if start is not None:
            self._load(start)
        # Kernels of convolutions lie channels last, without gaps: another order rounds otherwise.
        self.flat = FlatModule(task.module, alignment=1, channels_last=True)
        self.rule = task.rule(self.spec, self.flat.parameters)
        self.images = torch.from_numpy(images).to(device)
        self.width = min(self.spec.batch_size, len(images))
        self.steps = len(images) // self.width
        self.history: list[list[float]] = []
        # What a step reads and writes stays where it is, so that steps can be recorded.
        self._rows = torch.zeros(self.width, dtype=torch.int64, device=device)
        self._draw = {
            purpose: torch.zeros(self.width, 4, dtype=torch.int64, device=device)
            for purpose in task.purposes
        }
        self._rate = torch.zeros((), device=device)
        self._totals = torch.zeros(2, device=device)
        self._loss: Callable[..., tuple[Tensor, Tensor]] = task.loss
        if self.spec.engine == "compiled":
            _repeatable_compiler()
            self._loss = torch.compile(task.loss, fullgraph=True, dynamic=False)

    def finish(
        self,
        home: RunFolder | None,
        limits: RunLimits,
        progress: Progress,
        watch: Watch | None,
        title: str = "Learning features",
    ) -> FrozenNetwork | None:
        """Train up to the last epoch or to a limit; return the map, or None if stopped."""
        known = None if home is None else home.load()
        if known is not None:
            weights, momentum, self.history = known
            self._load(weights)
            with torch.no_grad():
                self.rule.state[0].copy_(torch.from_numpy(momentum))
        first = len(self.history)
        step = self._recorded() if first < self.spec.epochs else self._step
        with reporting(progress, self.spec.epochs * self.steps, title):
            progress.advance(first * self.steps)
            for epoch in range(first, self.spec.epochs):
                report = self._epoch(step, epoch, progress)
                if watch is not None:
                    watch(report, self.frozen)
                if not np.isfinite(report.loss):
                    raise InvalidInputError(
                        f"The loss of epoch {epoch + 1} is not finite. Lower learning_rate, now"
                        f" {self.spec.learning_rate}."
                    )
                done = epoch + 1
                stop = limits.reached(done)
                if home is not None and (stop or done % limits.every == 0):
                    momentum = self.rule.state[0].cpu().numpy().copy()
                    home.save(self._tensors(), momentum, self.history)
                if stop and done < self.spec.epochs:
                    return None
        return self.frozen()

    def _epoch(self, run: Callable[[], None], epoch: int, progress: Progress) -> EpochReport:
        began = time.perf_counter()
        self._totals.zero_()
        done = epoch * self.steps
        planned = [
            self.rule.step_size(self.spec.rate(epoch, step, self.steps), done + step)
            for step in range(self.steps)
        ]
        rates = torch.tensor(planned, dtype=torch.float32, device=self.device)
        for rate, (rows, draw) in zip(rates, self._batches(epoch), strict=True):
            self._rows.copy_(rows)
            for purpose, words in draw.items():
                self._draw[purpose].copy_(words)
            self._rate.copy_(rate)
            run()
            progress.advance()
        loss, share = (self._totals / self.steps).tolist()
        self.history.append([loss, share])
        speed = self.steps * self.width / (time.perf_counter() - began)
        return EpochReport(epoch + 1, loss, share, speed)

    def _step(self) -> None:
        batch = self.task.batch(self.images, self._rows, self._draw)
        loss, share = self._loss(batch, self._draw)
        self.flat.collect(loss)
        with torch.no_grad():
            self.rule.step(self.flat.parameters, self.flat.gradients, self._rate)
        self._totals.add_(torch.stack([loss.detach(), share.detach()]))

    def _recorded(self) -> Callable[[], None]:
        """Record the launches of a step, so that a step costs one call; leave no trace of it."""
        if self.device.type != "cuda":
            return self._step
        self._recorder = Recorder(self.device)  # lives as long as what it recorded
        kept = [self.flat.parameters, *self.rule.state, self._totals, *self.task.module.buffers()]
        before = [tensor.clone() for tensor in kept]
        torch.cuda.synchronize()  # the recorder's stream must not overtake the copies
        with self._recorder.here():
            for _ in range(3):  # libraries set themselves up in the first steps
                self._step()
        replay = self._recorder.record(self._step)
        for tensor, old in zip(kept, before, strict=True):
            tensor.copy_(old)
        return replay

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
        """Yield rows and words of every step; rows beyond the last full batch are left out."""
        place = torch.arange(len(self.images), device=self.device)
        order = torch.sort(self.stream.words(Purpose.SHUFFLE, epoch, place)[0, :, 0], stable=True)
        rows = order.indices[: self.steps * self.width]
        words = {p: self.stream.words(p, epoch, rows)[0] for p in self.task.purposes}
        for start in range(0, len(rows), self.width):
            span = slice(start, start + self.width)
            yield rows[span], {purpose: drawn[span] for purpose, drawn in words.items()}

    def _tensors(self) -> Tensors:
        state = self.task.module.state_dict()
        return {
            name: value.detach().cpu().contiguous().numpy().copy()
            for name, value in state.items()
            if not name.endswith("num_batches_tracked")
        }

    def frozen(self) -> FrozenNetwork:
        """Return a copy of the map as it is now."""
        return self._freeze(self._tensors(), self.history)

    @torch.no_grad()
    def _load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        state = self.task.module.state_dict()
        for name, array in tensors.items():
            state[name].copy_(torch.from_numpy(np.array(array)))  # some cannot be written to


def machine_of(spec: PretrainSpec) -> dict[str, str | int]:
    """Return what decides bits beside the specification; compiled steps depend on the compiler."""
    found = fingerprint(spec.machine())
    if spec.engine == "compiled" and spec.device == "cuda":
        found["triton"] = version("triton")
    return found


def train_features(
    X: Any,
    spec: PretrainSpec,
    *,
    folder: str | os.PathLike[str] | None = None,
    limits: RunLimits | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> FrozenNetwork | None:
    """Learn a map from images alone.

    Parameters
    ----------
    X : uint8 array of shape (n, C, H, W) or (n, H, W)
        All samples; their order does not matter.
    spec : PretrainSpec
        How to learn.
    folder : path, optional
        Folder for checkpoints; a run that was stopped continues from there.
    limits : RunLimits, optional
        When to save and when to stop.
    progress : Progress, optional
        Advances with every epoch.
    watch : callable, optional
        Called after every epoch with its `EpochReport` and a function that copies the map.

    Returns
    -------
    FrozenNetwork or None
        None if it was stopped before the last epoch.

    Guarantee
    ---------
    The map is a function of the multiset of samples, the specification and the machine. There is
    no way in for labels.
    """
    images = sorted_images(X, spec.input_shape)
    device = require_device(spec.machine())
    origin = {
        "specification": spec.to_json(),
        "samples_sha256": samples_digest(images),
        "machine": machine_of(spec),
    }
    home = None if folder is None else RunFolder(Path(folder), origin)
    with deterministic(spec.machine()):
        run = Run(
            make_task(spec),
            images,
            device,
            lambda tensors, history: FrozenNetwork(spec, tensors, origin, history),
        )
        return run.finish(home, limits or RunLimits(), progress or Silent(), watch)
