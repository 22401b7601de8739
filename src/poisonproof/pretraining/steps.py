"""One step of training, run as it is or recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from poisonproof.engines.torch.capture import Recorder
from poisonproof.pretraining.flat import FlatWeights
from poisonproof.pretraining.tasks import Task

__all__ = ["Stepper"]

_WARM = 3
"""Steps before recording: libraries set themselves up in the first ones."""


class Stepper:
    """Batches of one width through loss, gradient and update.

    Parameters
    ----------
    task : Task
        Network and loss, on the device.
    weights : FlatWeights
        The network's parameters.
    images : uint8 tensor of shape (n, C, H, W)
        All samples, on the device.
    width : int
        Images per step.
    """

    def __init__(self, task: Task, weights: FlatWeights, images: Tensor, width: int) -> None:
        self.task, self.weights, self.images = task, weights, images
        device = images.device
        self.rows = torch.zeros(width, dtype=torch.int64, device=device)
        self.draw = {
            purpose: torch.zeros(width, 4, dtype=torch.int64, device=device)
            for purpose in task.purposes
        }
        self.rate = torch.zeros((), device=device)
        self.totals = torch.zeros(2, device=device)
        self._loss: Callable[..., tuple[Tensor, Tensor]] = task.loss
        if task.spec.engine == "compiled":
            _repeatable_compiler()
            self._loss = torch.compile(task.loss, fullgraph=True, dynamic=False)
        # The recorder holds what it recorded, so it must live as long as this does.
        self._recorder = Recorder(device)
        self._work = self._recorded()

    def run(self, rows: Tensor, draw: dict[int, Tensor], rate: Tensor) -> None:
        """Take one step; loss and share are added to `totals`."""
        self.rows.copy_(rows)
        for purpose, words in draw.items():
            self.draw[purpose].copy_(words)
        self.rate.copy_(rate)
        self._work()

    def _step(self) -> None:
        spec = self.task.spec
        batch = self.task.batch(self.images, self.rows, self.draw)
        loss, share = self._loss(batch, self.draw)
        self.weights.differentiate(loss)
        self.weights.update(self.rate, spec)
        self.totals.add_(torch.stack([loss.detach(), share.detach()]))

    def _recorded(self) -> Callable[[], None]:
        """Record the launches of a step, so that a step costs one call; leave no trace of it."""
        if self.images.device.type != "cuda":
            return self._step
        kept = self._state()
        before = [tensor.clone() for tensor in kept]
        torch.cuda.synchronize()  # the recorder's stream must not overtake the copies
        with self._recorder.here():
            for _ in range(_WARM):
                self._step()
        replay = self._recorder.record(self._step)
        for tensor, old in zip(kept, before, strict=True):
            tensor.copy_(old)
        return replay

    def _state(self) -> list[Tensor]:
        weights = self.weights
        return [weights.values, weights.moments, self.totals, *self.task.module.buffers()]


def _repeatable_compiler() -> None:
    """Forbid the compiler to choose kernels by timing them: the load would choose the bits."""
    from torch._inductor import config  # there is no public switch

    settings: Any = config
    if hasattr(settings, "deterministic"):
        settings.deterministic = True
    settings.triton.autotune_pointwise = False
    settings.max_autotune = False
    settings.coordinate_descent_tuning = False
