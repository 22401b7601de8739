"""The rows of a whole stack on the device, and the batches cut from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from poisonproof.engines.torch.batches import Step, member_stream
from poisonproof.engines.torch.device import sent
from poisonproof.engines.torch.losses import mix, soft_labels
from poisonproof.engines.torch.rows import MemberRows, dummy_rows
from poisonproof.learners.torch.augmentation import augment
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["Lanes"]


class Lanes:
    """At most `stack_width` members side by side; dummy lanes fill the stack up.

    Parameters
    ----------
    spec : TorchSpec
        The law of the members.
    members : sequence of MemberRows
        One lane each.
    seed : int
        Seed of the ensemble.
    device : torch.device
        Where the rows go.
    """

    def __init__(
        self, spec: TorchSpec, members: Sequence[MemberRows], seed: int, device: torch.device
    ) -> None:
        self.spec, self.device = spec, device
        width = 1 if spec.is_alone else spec.stack_width
        lanes = [*members, *[dummy_rows(spec)] * (width - len(members))]
        self.sizes = [len(lane) for lane in lanes]
        # Members are gathered from one flat table: a gather moves bits and computes none.
        self.X = self._table(lanes)
        no_label = torch.zeros(1, dtype=torch.int64)
        labels = torch.cat([no_label, *(lane.y for lane in lanes)])
        self.targets = sent(soft_labels(labels, spec), device)
        self._lengths = torch.tensor(self.sizes)
        starts = torch.cumsum(self._lengths, 0) - self._lengths + 1
        self.starts = sent(starts[:, None], device)
        self.mean = sent(torch.stack([lane.mean for lane in lanes])[:, None], device)
        self.std = sent(torch.stack([lane.std for lane in lanes])[:, None], device)
        self.stream = member_stream(spec, seed, [lane.index for lane in lanes], device)

    @property
    def pieces_are_free(self) -> bool:
        """Whether a part of a batch can be gathered alone: copies and exact arithmetic only."""
        return self.spec.augmentation.is_identity and not self.spec.mixup

    def raw(self, step: Step, width: int) -> tuple[Tensor, Tensor]:
        """Return augmented inputs before normalisation, and label distributions.

        Parameters
        ----------
        step : Step
            What to gather.
        width : int
            Rows per lane of the result; rows behind a lane's count are another row's copy.

        Returns
        -------
        x : float32 tensor of shape (S, width, ...)
        targets : float32 tensor of shape (S, width, C)
        """
        place = self._places(step, width)
        x, targets = self.X[place], self.targets[place]
        if not self.spec.augmentation.is_identity:
            x = augment(x, self.spec.augmentation, lambda purpose: step.draw(purpose)[:, :width])
        if step.share is not None:
            x, targets = (mix(v, step.share, step.counts) for v in (x, targets))
        return x, targets

    def batch(self, step: Step, width: int) -> tuple[Tensor, Tensor]:
        """Return `raw`, normalised, with zeros behind each lane's count."""
        if self.pieces_are_free:
            place = self._places(step, width)
            return self._normalised[place], self.targets[place]
        x, targets = self.raw(step, width)
        x = (x - self.mean) / self.std
        real = torch.arange(width, device=self.device) < step.counts[:, None]
        return torch.where(real.view(*real.shape, *(1,) * (x.ndim - 2)), x, 0.0), targets

    def _table(self, lanes: Sequence[MemberRows]) -> Tensor:
        """Return the rows of all lanes on the device, behind a blank one."""
        blank = torch.zeros(1, *self.spec.input_shape)
        return sent(torch.cat([blank, *(lane.X for lane in lanes)]), self.device)

    def _places(self, step: Step, width: int) -> Tensor:
        """Return where a step's rows lie in the flat tables; the blank row fills lanes up."""
        real = torch.arange(width, device=self.device) < step.counts[:, None]
        return torch.where(real, step.rows[:, :width] + self.starts, 0)

    @cached_property
    def _normalised(self) -> Tensor:
        """All rows, normalised once: rows that nothing changes are the same in every epoch."""
        if self.spec.normalize == "none":
            return self.X
        lane = sent(torch.repeat_interleave(self._lengths), self.device)
        rows = (self.X[1:] - self.mean[lane, 0]) / self.std[lane, 0]
        return torch.cat([self.X[:1], rows])
