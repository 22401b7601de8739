"""The views of a whole stack's rows on the device, and batches of one view per row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from poisonproof.engines.torch.batches import Step
from poisonproof.engines.torch.lanes import Lanes
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.learners.torch.streams import Purpose, below

__all__ = ["ViewLanes"]


class ViewLanes(Lanes):
    """Lanes whose rows are float16 tensors of shape (m, views, d).

    In every epoch each row shows one of its views, drawn from its member's own stream.
    """

    def batch(self, step: Step, width: int) -> tuple[Tensor, Tensor]:
        """Return one view per row as float32, shape (S, width, d), and label distributions."""
        place = self._places(step, width)
        words = self.stream.words(Purpose.VIEW, step.epoch, step.rows[:, :width])
        chosen = (place - 1) * self._views + below(words[..., 0], self._views) + 1
        return self.X[torch.where(place > 0, chosen, 0)].float(), self.targets[place]

    def _table(self, lanes: Sequence[MemberRows]) -> Tensor:
        """Return the views of all lanes, one after the other, behind a blank one.

        Lane by lane: a joined copy on the host would hold everything once more.
        """
        filled = [lane.X for lane in lanes if len(lane)]
        _, self._views, length = filled[0].shape
        rows = sum(len(views) for views in filled)
        table = torch.zeros(1 + rows * self._views, length, dtype=torch.float16, device=self.device)
        start = 1
        for views in filled:
            stop = start + len(views) * self._views
            table[start:stop].copy_(views.flatten(0, 1))
            start = stop
        return table
