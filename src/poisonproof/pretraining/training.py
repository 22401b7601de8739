"""From images to a frozen map: the training loop, without labels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.device import deterministic, fingerprint, require_device
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.networks import initialise
from poisonproof.learners.torch.streams import Purpose, Stream
from poisonproof.pretraining.checkpoint import Checkpoint, RunFolder, Tensors
from poisonproof.pretraining.flat import FlatWeights
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.samples import samples_digest, sorted_images
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.steps import Stepper
from poisonproof.pretraining.tasks import Task, make_task
from poisonproof.progress import Progress, Silent

__all__ = ["EpochReport", "Limits", "Watch", "train_features"]


@dataclass(frozen=True)
class EpochReport:
    """What one epoch came to.

    Attributes
    ----------
    epoch : int
        Counted from 1.
    loss, share : float
        Mean loss, and the share of tasks done correctly.
    images_per_second : float
        Speed of the epoch.
    """

    epoch: int
    loss: float
    share: float
    images_per_second: float


Watch = Callable[[EpochReport, Callable[[], FrozenNetwork]], None]
"""Told of every epoch, with a copy of the map on request. Whatever it does, training goes on."""


@dataclass(frozen=True)
class Limits:
    """When to save and when to stop; none of this changes a bit of the result.

    Attributes
    ----------
    every : int
        Epochs between two checkpoints.
    deadline : float, optional
        Value of `time.monotonic` at which to save and stop.
    stop_after : int, optional
        Epochs after which to save and stop, as if killed.
    """

    every: int = 10
    deadline: float | None = None
    stop_after: int | None = None


def train_features(
    X: Any,
    spec: PretrainSpec,
    *,
    folder: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> FrozenNetwork | None:
    """Learn a map from images alone.

    Parameters
    ----------
    X : uint8 array of shape (n, C, H, W) or (n, H, W)
        All samples; their order does not matter.
    spec : PretrainSpec
        The law.
    folder : path, optional
        Where states are kept; a run that was stopped goes on from there.
    limits : Limits, optional
        When to save and when to stop.
    progress : Progress, optional
        Told of every epoch.
    watch : callable, optional
        Told of loss and speed of every epoch.

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
    law = {
        "specification": spec.to_json(),
        "samples_sha256": samples_digest(images),
        "machine": _machine(spec),
    }
    home = None if folder is None else RunFolder(Path(folder), law)
    with deterministic(spec.machine()):
        run = _Run(spec, images, device, law)
        return run.finish(home, limits or Limits(), progress or Silent(), watch)


class _Run:
    """A map that is being learned."""

    def __init__(
        self,
        spec: PretrainSpec,
        images: NDArray[np.uint8],
        device: torch.device,
        law: dict[str, Any],
    ) -> None:
        self.spec, self.law, self.device = spec, law, device
        self.task = make_task(spec)
        self.task.pixels.to(device)
        self.stream = Stream(spec.seed, torch.zeros(1, dtype=torch.int64, device=device))
        self.weights = _first_weights(self.task, self.stream, device)
        self.images = torch.from_numpy(images).to(device)
        self.width = min(spec.batch_size, len(images))
        self.steps = len(images) // self.width
        self.history: list[list[float]] = []

    def finish(
        self, home: RunFolder | None, limits: Limits, progress: Progress, watch: Watch | None
    ) -> FrozenNetwork | None:
        known = None if home is None else home.load()
        if known is not None:
            self._restore(known)
        first = len(self.history)
        if first < self.spec.epochs:
            stepper = Stepper(self.task, self.weights, self.images, self.width)
        progress.start(self.spec.epochs, "Learning features")
        progress.advance(first)
        try:
            for epoch in range(first, self.spec.epochs):
                report = self._epoch(stepper, epoch)
                progress.advance()
                if watch is not None:
                    watch(report, self.frozen)
                if not np.isfinite(report.loss):
                    raise InvalidInputError(
                        f"The loss of epoch {epoch + 1} is not finite. Lower learning_rate, now"
                        f" {self.spec.learning_rate}."
                    )
                done = epoch + 1
                stop = _must_stop(limits, done)
                if home is not None and (stop or done % limits.every == 0):
                    home.save(self._state())
                if stop and done < self.spec.epochs:
                    return None
        finally:
            progress.stop()
        return self.frozen()

    def _epoch(self, stepper: Stepper, epoch: int) -> EpochReport:
        began = time.perf_counter()
        stepper.totals.zero_()
        planned = [self.spec.rate(epoch, step, self.steps) for step in range(self.steps)]
        rates = torch.tensor(planned, dtype=torch.float32, device=self.device)
        for rate, (rows, draw) in zip(rates, self._batches(epoch), strict=True):
            stepper.run(rows, draw, rate)
        loss, share = (stepper.totals / self.steps).tolist()
        self.history.append([loss, share])
        speed = self.steps * self.width / (time.perf_counter() - began)
        return EpochReport(epoch + 1, loss, share, speed)

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, dict[int, Tensor]]]:
        """Yield rows and words of every step; what is left of the shuffled rows sits out."""
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

    def _state(self) -> Checkpoint:
        momentum = self.weights.velocity.cpu().numpy().copy()
        return Checkpoint(len(self.history), self._tensors(), momentum, self.history)

    def _restore(self, known: Checkpoint) -> None:
        self.history = known.history
        state = self.task.module.state_dict()
        with torch.no_grad():
            for name, array in known.weights.items():
                state[name].copy_(torch.from_numpy(array))
            self.weights.velocity.copy_(torch.from_numpy(known.momentum))

    def frozen(self) -> FrozenNetwork:
        """Return a copy of the map as it is now."""
        return FrozenNetwork(self.spec, self._tensors(), self.law, self.history)


def _machine(spec: PretrainSpec) -> dict[str, str | int]:
    """Return what decides bits beside the specification; compiled steps depend on the compiler."""
    found = fingerprint(spec.machine())
    if spec.engine == "compiled" and spec.device == "cuda":
        found["triton"] = version("triton")
    return found


def _must_stop(limits: Limits, done: int) -> bool:
    late = limits.deadline is not None and time.monotonic() > limits.deadline
    return late or (limits.stop_after is not None and done >= limits.stop_after)


def _first_weights(task: Task, stream: Stream, device: torch.device) -> FlatWeights:
    first = initialise(task.module, stream)
    task.module.load_state_dict({name: value[0] for name, value in first.items()})
    task.module.to(device)
    return FlatWeights(task.module)
