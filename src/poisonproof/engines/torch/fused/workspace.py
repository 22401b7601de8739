"""The memory of a stack of NiN members on the device, allocated once."""

from __future__ import annotations

import torch
from torch import Tensor

from poisonproof.engines.torch.fused.layout import Layout

__all__ = ["CHUNK", "SPAN", "Workspace"]

SPAN = 512
"""Rows per partial sum of batch norm."""

CHUNK = 4096
"""Rows of a weight gradient per program, where a lane has many."""

_SLACK = 64
"""Values behind the last lane that a run's padding may read; always zero."""


class Workspace:
    """Buffers of `lanes` members; a lane is row ``[lane]`` of every tensor.

    Parameters
    ----------
    layout : Layout
        Shapes and offsets.
    device : torch.device
        A CUDA device.
    train : bool
        Whether gradients need room; members that only vote need none.
    """

    def __init__(self, layout: Layout, device: torch.device, *, train: bool = True) -> None:
        self.layout, self.device = layout, device
        lanes, rows = layout.lanes, layout.rows
        units, widest = layout.units, max(unit.cout for unit in layout.units)
        channels, height, width = layout.spec.input_shape
        self.width = widest
        half, single = torch.bfloat16, torch.float32
        self.targets = self._zeros((rows, layout.classes_padded), single)
        self.input_mean = self._zeros((channels,), single)
        self.input_std = self._zeros((channels,), single) + 1
        self.counts = torch.zeros(lanes, dtype=torch.int32, device=device)
        self.rates = torch.zeros(lanes, dtype=single, device=device)
        self.healthy = torch.ones(lanes, dtype=torch.int32, device=device)
        self.losses = torch.zeros(lanes, dtype=single, device=device)
        self.inputs = [
            self._zeros((rows * unit.image,), half) if unit.first or unit.spatial else None
            for unit in units
        ]
        self.z = [self._zeros((rows * unit.pixels * unit.cout,), half) for unit in units]
        pools = layout.pools
        self.which = {
            i: self._zeros((rows * pool.pixels * pool.after.cout,), torch.int8)
            for i, pool in pools.items()
            if pool.kind == "max"
        }
        self.norm = {
            name: [self._zeros((widest,), single) for _ in units]
            for name in ("mean", "rstd", "scale", "shift", "run_mean", "run_var")
        }
        self.features = self._zeros((rows, units[-1].cout), single)
        self.scores = self._zeros((rows, layout.classes_padded), single)
        self.parameters = self._zeros((layout.parameters,), single)
        self.low = self._zeros((layout.convolution_parameters,), half)
        self.velocity = self._zeros((layout.parameters,), single)
        self.gradients = self._zeros((layout.parameters,), single)
        self.feature_grad = self._zeros((rows, units[-1].cout), single)
        self.factors = self._zeros((2 * widest,), single)
        spans = -(-rows * units[0].pixels // SPAN)
        self.partial = self._zeros((spans * 2 * widest,), single)
        if train:
            self._allocate_gradients(layout, (rows, channels, height, width))

    def _allocate_gradients(self, layout: Layout, images: tuple[int, ...]) -> None:
        units, rows, half = layout.units, layout.rows, torch.bfloat16
        self.images = self._zeros(images, torch.float32)
        self.g = [self._zeros((rows * unit.pixels * unit.cout,), half) for unit in units]
        self.bordered = [
            self._zeros((rows * unit.grad_image,), half) if unit.spatial else None for unit in units
        ]
        self.pooled_grad = {
            i: self._zeros((rows * pool.pixels * pool.after.cout,), half)
            for i, pool in layout.pools.items()
        }
        largest = max(self.splits(unit.number) * unit.weights for unit in units)
        self.weight_partial = self._zeros((largest,), torch.float32)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        lanes = self.layout.lanes
        size = lanes
        for side in shape:
            size *= side
        # Zeroed, slack included: borders are read and never written.
        flat = torch.zeros(size + _SLACK, dtype=dtype, device=self.device)
        return flat[:size].view(lanes, *shape)

    def chunk(self, number: int) -> int:
        """Return the rows per chunk of a unit's weight gradient; wide convolutions take all."""
        unit = self.layout.units[number]
        return self.layout.rows * unit.pixels if unit.spatial else CHUNK

    def splits(self, number: int) -> int:
        """Return the largest number of chunks of a unit's weight gradient."""
        return -(-self.layout.rows * self.layout.units[number].pixels // self.chunk(number))

    def table(self, name: str, source: Tensor | None = None) -> Tensor:
        """Return one parameter of all lanes (or the same stretch of `source`), shape (S, size)."""
        start, size = self.layout.offsets[name]
        return (self.parameters if source is None else source)[:, start : start + size]
