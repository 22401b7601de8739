"""The memory of a stack of NiN members on the device, and the launches of its kernels in order.

Tile shapes, warps and stages are constants: none is found by timing, so the load of the machine
cannot choose a kernel, and with it the bits.
"""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from poisonproof.networks.fused.backward_kernels import (
    conv_input_grad,
    conv_weight_grad,
    gradient_sums,
    head,
    norm_backward,
    norm_sums,
    pooled_features,
    update,
)
from poisonproof.networks.fused.forward_kernels import (
    column_sums,
    columns,
    conv_forward,
    pool_backward,
    pool_forward,
    statistics,
)
from poisonproof.networks.fused.layout import NinLayout, Pool, Unit

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"

SPAN = 512
"""Rows per partial sum of batch norm."""

SUM_SPANS = 16
"""Partial sums added at once."""

CHUNK = 4096
"""Rows of a weight gradient per program, where a lane has many."""

STAGES = 3
"""Depth of the software pipeline of a product."""

_SLACK = 64
"""Values behind the last lane that a run's padding may read; always zero."""


def _lanes(*buffers: Tensor) -> tuple[int, ...]:
    """Return how far apart the lanes of buffers lie."""
    return tuple(buffer.stride(0) for buffer in buffers)


class NinStack:
    """Buffers of `lanes` members, allocated once, and the launches of their passes.

    A lane is row ``[lane]`` of every tensor. Members that only vote need no room for gradients.
    """

    def __init__(self, layout: NinLayout, device: torch.device, *, train: bool = True) -> None:
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
            i: self._zeros((rows * pool.before.pixels * pool.after.cout,), torch.int8)
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
        if not train:
            return
        self.images = self._zeros((rows, channels, height, width), single)
        self.g = [self._zeros((rows * unit.pixels * unit.cout,), half) for unit in units]
        self.bordered = [
            self._zeros((rows * unit.grad_image,), half) if unit.spatial else None for unit in units
        ]
        self.pooled_grad = {
            i: self._zeros((rows * pool.before.pixels * pool.after.cout,), half)
            for i, pool in pools.items()
        }
        largest = max(self.splits(unit) * unit.weights for unit in units)
        self.weight_partial = self._zeros((largest,), single)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        lanes = self.layout.lanes
        size = lanes * math.prod(shape)
        # Zeroed, slack included: borders are read and never written.
        flat = torch.zeros(size + _SLACK, dtype=dtype, device=self.device)
        return flat[:size].view(lanes, *shape)

    def chunk(self, unit: Unit) -> int:
        """Return the rows per chunk of a unit's weight gradient; wide convolutions take all."""
        return self.layout.rows * unit.pixels if unit.spatial else CHUNK

    def splits(self, unit: Unit) -> int:
        """Return the largest number of chunks of a unit's weight gradient."""
        return -(-self.layout.rows * unit.pixels // self.chunk(unit))

    def table(self, name: str, source: Tensor | None = None) -> Tensor:
        """Return one parameter of all lanes (or the same stretch of `source`), shape (S, size)."""
        start, size = self.layout.offsets[name]
        return (self.parameters if source is None else source)[:, start : start + size]

    def forward(self, images: Tensor, *, train: bool) -> None:
        """Go from images (S, rows, C, H, W), or (1, ...) for all lanes alike, to scores.

        In training the loss and the gradients up to the features come with them.
        """
        layout = self.layout
        self._columns(images)
        for unit in layout.units:
            self._convolve(unit)
            if train:
                self._statistics(unit)
            if unit.number in layout.pools:
                self._pool(layout.pools[unit.number])
        last, norm, z = layout.units[-1], self.norm, self.z[-1]
        buffers = (z, norm["scale"][-1], norm["shift"][-1], self.features, self.counts)
        sizes = (z.stride(0), self.width, layout.rows, last.pixels, last.cout)
        pooled_features[layout.rows * (last.cout // 64), layout.lanes](*buffers, *sizes, 64, 64)
        self._head(train=train)

    def backward(self) -> None:
        """Go from the features' gradient to new weights."""
        units, pools = self.layout.units, self.layout.pools
        self._through_pool(units[-1], "mean", self.feature_grad, 1, 1)
        for unit in reversed(units):
            self._norm(unit)
            if unit.number:
                self._input_grad(unit)
            self._weight_grad(unit)
            self._update_convolution(unit)
            before = pools.get(unit.number - 1)
            if before is not None:
                grad = self.pooled_grad[unit.number - 1]
                self._through_pool(before.after, before.kind, grad, unit.height, unit.width)
        self._update_small()

    # What the launches of both passes share: how much work, in which pieces.

    def _tiling(self, unit: Unit) -> tuple[int, int, int]:
        """Return the programs per lane of a product, the rows of each, and its warps."""
        tile = 128 if unit.spatial else 64
        return triton.cdiv(self.layout.rows * unit.pixels, tile), tile, tile // 16

    def _spans(self, unit: Unit) -> tuple[int, int]:
        """Return the programs per lane that sum over rows, and the channels of each."""
        piece = 64 if unit.cout % 64 == 0 else 32
        return triton.cdiv(self.layout.rows * unit.pixels, SPAN) * (unit.cout // piece), piece

    def _low(self, unit: Unit) -> Tensor:
        """Return a unit's weights in half precision, for products."""
        return self.table(f"weight{unit.number}", self.low)

    def _input(self, unit: Unit) -> tuple[Tensor, Tensor, Tensor]:
        """Return a unit's input and the scale and shift to apply to it."""
        norm, before = self.norm, max(unit.number - 1, 0)
        stored = self.inputs[unit.number]
        source = self.z[before] if stored is None else stored
        return source, norm["scale"][before], norm["shift"][before]

    def _gradient(self, unit: Unit) -> Tensor:
        bordered = self.bordered[unit.number]
        return self.g[unit.number] if bordered is None else bordered

    # The kernels of the forward pass, in order.

    def _columns(self, images: Tensor) -> None:
        unit = self.layout.units[0]
        target = self.inputs[0]
        assert target is not None
        buffers = (images, self.input_mean, self.input_std, target, self.counts)
        stride = 0 if len(images) == 1 and self.layout.lanes > 1 else images.stride(0)
        image = (unit.cin, unit.height, unit.width)
        sizes = (*image, unit.side, unit.run, unit.run_padded, target.stride(0))
        programs = triton.cdiv(self.layout.rows * unit.pixels, 64)
        columns[programs, self.layout.lanes](*buffers, stride, *sizes, 64)

    def _convolve(self, unit: Unit) -> None:
        source, scale, shift = self._input(unit)
        z, low, flat = self.z[unit.number], self._low(unit), not unit.spatial
        tiles, tile, warps = self._tiling(unit)
        buffers = (source, low, z, scale, shift, self.counts, *_lanes(source, low, z), self.width)
        sizes = (*unit.window, unit.runs, unit.run_padded, unit.cout, *unit.out_chunks)
        way = (flat, flat and not unit.first, tile, unit.block_k, STAGES)
        conv_forward[tiles, self.layout.lanes](*buffers, *sizes, *way, num_warps=warps)

    def _statistics(self, unit: Unit) -> None:
        norm, i = self.norm, unit.number
        gamma, beta, z = self.table(f"gamma{i}"), self.table(f"beta{i}"), self.z[i]
        programs, piece = self._spans(unit)
        buffers = (z, self.partial, self.counts, *_lanes(z, self.partial))
        column_sums[programs, self.layout.lanes](*buffers, unit.pixels, unit.cout, SPAN, 32, piece)
        moments = (
            norm[name][i] for name in ("mean", "rstd", "scale", "shift", "run_mean", "run_var")
        )
        sizes = (unit.pixels, *_lanes(self.partial, gamma), self.width, unit.cout, SPAN, SUM_SPANS)
        statistics[unit.cout // 32, self.layout.lanes](
            self.partial, gamma, beta, *moments, self.counts, *sizes, 32
        )

    def _pool(self, pool: Pool) -> None:
        i, norm = pool.after.number, self.norm
        z, target = self.z[i], self.inputs[i + 1]
        assert target is not None
        which = self.which.get(i, self.healthy)
        unit, after = pool.after, pool.before
        buffers = (z, norm["scale"][i], norm["shift"][i], target, which, self.counts)
        lanes = (z.stride(0), self.width, target.stride(0), which.stride(0))
        sides = (unit.height, unit.width, after.height, after.width, unit.cout)
        bordered = (after.image, after.line, after.border)
        grid = triton.cdiv(self.layout.rows * pool.before.pixels, 32) * (unit.cout // 32)
        pool_forward[grid, self.layout.lanes](
            *buffers, *lanes, *sides, *bordered, pool.kind, 32, 32
        )

    def _head(self, *, train: bool) -> None:
        layout = self.layout
        weight, bias = (self.table(name) for name in ("head", "bias"))
        weight_grad, bias_grad = (self.table(name, self.gradients) for name in ("head", "bias"))
        forward = (self.features, weight, bias, self.targets, self.scores)
        backward = (weight_grad, bias_grad, self.feature_grad)
        state = (self.losses, self.healthy, self.counts)
        sizes = (weight.stride(0), layout.rows, layout.units[-1].cout, 32)
        classes = (layout.spec.n_classes, layout.classes_padded)
        head[(layout.lanes,)](*forward, *backward, *state, *sizes, *classes, train, num_warps=8)

    # The kernels of the backward pass and of the update, in order.

    def _through_pool(self, unit: Unit, kind: str, grad: Tensor, high: int, wide: int) -> None:
        i = unit.number
        which, g = self.which.get(i, self.healthy), self.g[i]
        programs = triton.cdiv(self.layout.rows * unit.pixels, 64) * (unit.cout // 32)
        sizes = (unit.height, unit.width, high, wide, unit.cout)
        pool_backward[programs, self.layout.lanes](
            grad, which, g, self.counts, *_lanes(grad, which, g), *sizes, kind, 64, 32
        )

    def _norm(self, unit: Unit) -> None:
        i, norm = unit.number, self.norm
        gamma, beta = (self.table(f"{name}{i}", self.gradients) for name in ("gamma", "beta"))
        mean, rstd, scale, shift = (norm[name][i] for name in ("mean", "rstd", "scale", "shift"))
        g, z, target = self.g[i], self.z[i], self._gradient(unit)
        programs, piece = self._spans(unit)
        sizes = (z.stride(0), self.width, self.partial.stride(0), unit.pixels, unit.cout, SPAN)
        gradient_sums[programs, self.layout.lanes](
            g, z, scale, shift, mean, rstd, self.partial, self.counts, *sizes, 32, piece
        )
        given = (self.partial, mean, rstd, scale, self.factors, gamma, beta, self.counts)
        lanes = (*_lanes(self.partial, gamma), self.width)
        norm_sums[unit.cout // 32, self.layout.lanes](
            *given, unit.pixels, *lanes, unit.cout, SPAN, SUM_SPANS, 32
        )
        buffers = (g, z, target, scale, shift, self.factors, self.counts)
        window = (*_lanes(z, target), self.width, unit.pixels, unit.width, *unit.grad_window)
        programs = triton.cdiv(self.layout.rows * unit.pixels, 64) * (unit.cout // piece)
        norm_backward[programs, self.layout.lanes](
            *buffers, *window, unit.cout, not unit.spatial, 64, piece
        )

    def _input_grad(self, unit: Unit) -> None:
        before = unit.number - 1
        source, low = self._gradient(unit), self._low(unit)
        target = self.pooled_grad[before] if unit.spatial else self.g[before]
        tiles, tile, warps = self._tiling(unit)
        buffers = (source, low, target, self.counts, *_lanes(source, low, target))
        image = (unit.pixels, unit.width, unit.grad_image, unit.grad_line)
        sizes = (unit.side, unit.cin, unit.cout, unit.run_padded, *unit.in_chunks)
        way = (not unit.spatial, tile, 64 if unit.cout % 64 == 0 else 32, STAGES)
        conv_input_grad[tiles, self.layout.lanes](*buffers, *image, *sizes, *way, num_warps=warps)

    def _weight_grad(self, unit: Unit) -> None:
        source, scale, shift = self._input(unit)
        grad, flat = self._gradient(unit), not unit.spatial
        block = 128 if unit.spatial else min(64, unit.run_padded)
        programs = self.splits(unit) * unit.runs * triton.cdiv(unit.run_padded, block)
        buffers = (source, grad, self.weight_partial, scale, shift, self.counts)
        lanes = (*_lanes(source, grad, self.weight_partial), unit.weights, self.width)
        runs = (unit.runs, unit.run, unit.run_padded, unit.cout, *unit.out_chunks)
        windows = (*unit.window, *unit.grad_window)
        way = (flat, flat and not unit.first, self.chunk(unit), block, 64, STAGES)
        conv_weight_grad[programs, self.layout.lanes](
            *buffers, *lanes, *windows, *runs, *way, num_warps=8 if block == 128 else 4
        )

    def _update_convolution(self, unit: Unit) -> None:
        name = f"weight{unit.number}"
        tables = (self.table(name), self.table(name, self.velocity), self._low(unit))
        chunks = (unit.weights, unit.pixels, self.chunk(unit))
        self._update(tables, self.weight_partial, chunks, low=True)

    def _update_small(self) -> None:
        start = self.layout.convolution_parameters
        tables = (self.parameters[:, start:], self.velocity[:, start:], self.low)
        self._update(tables, self.gradients[:, start:], (0, 1, self.layout.rows), low=False)

    def _update(
        self,
        tables: tuple[Tensor, Tensor, Tensor],
        gradients: Tensor,
        chunks: tuple[int, int, int],
        *,
        low: bool,
    ) -> None:
        spec, (parameters, _, low_copy) = self.layout.spec, tables
        size, (split, pixels, chunk) = parameters.shape[1], chunks
        rule = (spec.weight_decay, spec.momentum, spec.nesterov)
        buffers = (*tables, gradients, self.rates, self.healthy, self.counts)
        lanes = (*_lanes(parameters, gradients), split, low_copy.stride(0))
        update[triton.cdiv(size, 1024), self.layout.lanes](
            *buffers, *lanes, size, pixels, chunk, *rule, low, 1024
        )
