"""What the launches of both passes share: how much work, in which pieces.

Tile shapes, warps and stages are constants: none is found by timing, so the load of the machine
cannot choose a kernel, and with it the bits.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
from __future__ import annotations

import triton
from torch import Tensor

from poisonproof.engines.torch.fused.layout import Unit
from poisonproof.engines.torch.fused.workspace import SPAN, Workspace

__all__ = ["STAGES", "SUM_SPANS", "Launches"]

SUM_SPANS = 16
"""Partial sums added at once."""

STAGES = 3
"""Depth of the software pipeline of a product."""


class Launches:
    """A workspace and the sizes of its launches.

    Parameters
    ----------
    work : Workspace
        The lanes.
    """

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.layout = work.layout

    def tiling(self, unit: Unit) -> tuple[int, int, int]:
        """Return the programs per lane of a product, the rows of each, and its warps."""
        tile = 128 if unit.spatial else 64
        return triton.cdiv(self.layout.rows * unit.pixels, tile), tile, tile // 16

    def spans(self, unit: Unit) -> tuple[int, int]:
        """Return the programs per lane that sum over rows, and the channels of each."""
        piece = 64 if unit.cout % 64 == 0 else 32
        return triton.cdiv(self.layout.rows * unit.pixels, SPAN) * (unit.cout // piece), piece

    def low(self, unit: Unit) -> Tensor:
        """Return a unit's weights in half precision, for products."""
        return self.work.table(f"weight{unit.number}", self.work.low)

    def input(self, unit: Unit) -> tuple[Tensor, Tensor, Tensor]:
        """Return a unit's input and the scale and shift to apply to it."""
        norm, before = self.work.norm, max(unit.number - 1, 0)
        stored = self.work.inputs[unit.number]
        source = self.work.z[before] if stored is None else stored
        return source, norm["scale"][before], norm["shift"][before]
