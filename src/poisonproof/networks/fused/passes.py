"""The memory of a stack of NiN members on the device, allocated once."""

from __future__ import annotations

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
from poisonproof.networks.fused.layout import Layout, Pool, Unit

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


# What the launches of both passes share: how much work, in which pieces.
#
# Tile shapes, warps and stages are constants: none is found by timing, so the load of the machine
# cannot choose a kernel, and with it the bits.

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"


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


# The kernels of the forward pass, in order.

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"


class Forward(Launches):
    """Forward pass of all lanes of a workspace."""

    def run(self, images: Tensor, *, train: bool) -> None:
        """From images to features: shape (S, rows, C, H, W), or (1, ...) for all lanes alike."""
        work, layout = self.work, self.layout
        self._columns(images)
        for unit in layout.units:
            self._convolve(unit)
            if train:
                self._statistics(unit)
            if unit.number in layout.pools:
                self._pool(layout.pools[unit.number])
        last, norm = layout.units[-1], work.norm
        pooled_features[layout.rows * (last.cout // 64), layout.lanes](
            work.z[-1],
            norm["scale"][-1],
            norm["shift"][-1],
            work.features,
            work.counts,
            work.z[-1].stride(0),
            work.width,
            layout.rows,
            last.pixels,
            last.cout,
            64,
            64,
        )
        self._head(train=train)

    def _columns(self, images: Tensor) -> None:
        work, unit = self.work, self.layout.units[0]
        target = work.inputs[0]
        assert target is not None
        stride = 0 if len(images) == 1 and self.layout.lanes > 1 else images.stride(0)
        columns[triton.cdiv(self.layout.rows * unit.pixels, 64), self.layout.lanes](
            images,
            work.input_mean,
            work.input_std,
            target,
            work.counts,
            stride,
            unit.cin,
            unit.height,
            unit.width,
            unit.side,
            unit.run,
            unit.run_padded,
            target.stride(0),
            64,
        )

    def _convolve(self, unit: Unit) -> None:
        work = self.work
        source, scale, shift = self.input(unit)
        z, low, flat = work.z[unit.number], self.low(unit), not unit.spatial
        tiles, tile, warps = self.tiling(unit)
        conv_forward[tiles, self.layout.lanes](
            source,
            low,
            z,
            scale,
            shift,
            work.counts,
            source.stride(0),
            low.stride(0),
            z.stride(0),
            work.width,
            unit.pixels,
            unit.width,
            unit.image,
            unit.line,
            unit.in_channels,
            unit.runs,
            unit.run_padded,
            unit.cout,
            *unit.out_chunks,
            flat,
            flat and not unit.first,
            tile,
            unit.block_k,
            STAGES,
            num_warps=warps,
        )

    def _statistics(self, unit: Unit) -> None:
        work, norm, i = self.work, self.work.norm, unit.number
        gamma, beta = work.table(f"gamma{i}"), work.table(f"beta{i}")
        programs, piece = self.spans(unit)
        column_sums[programs, self.layout.lanes](
            work.z[i],
            work.partial,
            work.counts,
            work.z[i].stride(0),
            work.partial.stride(0),
            unit.pixels,
            unit.cout,
            SPAN,
            32,
            piece,
        )
        statistics[unit.cout // 32, self.layout.lanes](
            work.partial,
            gamma,
            beta,
            norm["mean"][i],
            norm["rstd"][i],
            norm["scale"][i],
            norm["shift"][i],
            norm["run_mean"][i],
            norm["run_var"][i],
            work.counts,
            unit.pixels,
            work.partial.stride(0),
            gamma.stride(0),
            work.width,
            unit.cout,
            SPAN,
            SUM_SPANS,
            32,
        )

    def _pool(self, pool: Pool) -> None:
        work, i, norm = self.work, pool.after.number, self.work.norm
        z, target = work.z[i], work.inputs[i + 1]
        assert target is not None
        which = work.which.get(i, work.healthy)
        unit, after = pool.after, pool.before
        grid = triton.cdiv(self.layout.rows * pool.pixels, 32) * (unit.cout // 32)
        pool_forward[grid, self.layout.lanes](
            z,
            norm["scale"][i],
            norm["shift"][i],
            target,
            which,
            work.counts,
            z.stride(0),
            work.width,
            target.stride(0),
            which.stride(0),
            unit.height,
            unit.width,
            after.height,
            after.width,
            unit.cout,
            after.image,
            after.line,
            after.border,
            pool.kind,
            32,
            32,
        )

    def _head(self, *, train: bool) -> None:
        work, layout = self.work, self.layout
        weight, grads = work.table("head"), work.gradients
        head[(layout.lanes,)](
            work.features,
            weight,
            work.table("bias"),
            work.targets,
            work.scores,
            work.table("head", grads),
            work.table("bias", grads),
            work.feature_grad,
            work.losses,
            work.healthy,
            work.counts,
            weight.stride(0),
            layout.rows,
            layout.units[-1].cout,
            32,
            layout.spec.n_classes,
            layout.classes_padded,
            train,
            num_warps=8,
        )


# The kernels of the backward pass and of the update, in order.

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"


class Backward(Launches):
    """Backward pass and update of all lanes of a workspace."""

    def run(self) -> None:
        """From the features' gradient to new weights."""
        units, pools = self.layout.units, self.layout.pools
        self._through_pool(units[-1], "mean", self.work.feature_grad, 1, 1)
        for unit in reversed(units):
            self._norm(unit)
            if unit.number:
                self._input_grad(unit)
            self._weight_grad(unit)
            self._update_convolution(unit)
            before = pools.get(unit.number - 1)
            if before is not None:
                grad = self.work.pooled_grad[unit.number - 1]
                self._through_pool(before.after, before.kind, grad, unit.height, unit.width)
        self._update_small()

    def _through_pool(self, unit: Unit, kind: str, grad: Tensor, high: int, wide: int) -> None:
        work, i = self.work, unit.number
        which = work.which.get(i, work.healthy)
        tiles = triton.cdiv(self.layout.rows * unit.pixels, 64)
        pool_backward[tiles * (unit.cout // 32), self.layout.lanes](
            grad,
            which,
            work.g[i],
            work.counts,
            grad.stride(0),
            which.stride(0),
            work.g[i].stride(0),
            unit.height,
            unit.width,
            high,
            wide,
            unit.cout,
            kind,
            64,
            32,
        )

    def _norm(self, unit: Unit) -> None:
        work, i, norm = self.work, unit.number, self.work.norm
        gamma = work.table(f"gamma{i}", work.gradients)
        beta = work.table(f"beta{i}", work.gradients)
        scale, shift, z = norm["scale"][i], norm["shift"][i], work.z[i]
        programs, piece = self.spans(unit)
        gradient_sums[programs, self.layout.lanes](
            work.g[i],
            z,
            scale,
            shift,
            norm["mean"][i],
            norm["rstd"][i],
            work.partial,
            work.counts,
            z.stride(0),
            work.width,
            work.partial.stride(0),
            unit.pixels,
            unit.cout,
            SPAN,
            32,
            piece,
        )
        norm_sums[unit.cout // 32, self.layout.lanes](
            work.partial,
            norm["mean"][i],
            norm["rstd"][i],
            scale,
            work.factors,
            gamma,
            beta,
            work.counts,
            unit.pixels,
            work.partial.stride(0),
            gamma.stride(0),
            work.width,
            unit.cout,
            SPAN,
            SUM_SPANS,
            32,
        )
        target = work.g[i] if work.bordered[i] is None else work.bordered[i]
        assert target is not None
        centre = unit.border * (unit.grad_line + unit.cout)
        programs = triton.cdiv(self.layout.rows * unit.pixels, 64) * (unit.cout // piece)
        norm_backward[programs, self.layout.lanes](
            work.g[i],
            z,
            target,
            scale,
            shift,
            work.factors,
            work.counts,
            z.stride(0),
            target.stride(0),
            work.width,
            unit.pixels,
            unit.width,
            unit.grad_image,
            unit.grad_line,
            centre,
            unit.cout,
            not unit.spatial,
            64,
            piece,
        )

    def _gradient(self, unit: Unit) -> Tensor:
        bordered = self.work.bordered[unit.number]
        return self.work.g[unit.number] if bordered is None else bordered

    def _input_grad(self, unit: Unit) -> None:
        work, before = self.work, unit.number - 1
        source, low = self._gradient(unit), self.low(unit)
        target = work.pooled_grad[before] if unit.spatial else work.g[before]
        tiles, tile, warps = self.tiling(unit)
        conv_input_grad[tiles, self.layout.lanes](
            source,
            low,
            target,
            work.counts,
            source.stride(0),
            low.stride(0),
            target.stride(0),
            unit.pixels,
            unit.width,
            unit.grad_image,
            unit.grad_line,
            unit.side,
            unit.cin,
            unit.cout,
            unit.run_padded,
            *unit.in_chunks,
            not unit.spatial,
            tile,
            64 if unit.cout % 64 == 0 else 32,
            STAGES,
            num_warps=warps,
        )

    def _weight_grad(self, unit: Unit) -> None:
        work = self.work
        source, scale, shift = self.input(unit)
        grad, flat = self._gradient(unit), not unit.spatial
        block = 128 if unit.spatial else min(64, unit.run_padded)
        tiles = triton.cdiv(unit.run_padded, block)
        centre = unit.border * (unit.grad_line + unit.cout)
        conv_weight_grad[work.splits(unit.number) * unit.runs * tiles, self.layout.lanes](
            source,
            grad,
            work.weight_partial,
            scale,
            shift,
            work.counts,
            source.stride(0),
            grad.stride(0),
            work.weight_partial.stride(0),
            unit.weights,
            work.width,
            unit.pixels,
            unit.width,
            unit.image,
            unit.line,
            unit.in_channels,
            unit.grad_image,
            unit.grad_line,
            centre,
            unit.runs,
            unit.run,
            unit.run_padded,
            unit.cout,
            *unit.out_chunks,
            flat,
            flat and not unit.first,
            work.chunk(unit.number),
            block,
            64,
            STAGES,
            num_warps=8 if block == 128 else 4,
        )

    def _update_convolution(self, unit: Unit) -> None:
        work = self.work
        name = f"weight{unit.number}"
        self._update(
            work.table(name),
            work.table(name, work.velocity),
            self.low(unit),
            work.weight_partial,
            unit.weights,
            unit.pixels,
            work.chunk(unit.number),
            low=True,
        )

    def _update_small(self) -> None:
        work, start = self.work, self.layout.convolution_parameters
        parameters = work.parameters[:, start:]
        self._update(
            parameters,
            work.velocity[:, start:],
            work.low,
            work.gradients[:, start:],
            0,
            1,
            self.layout.rows,
            low=False,
        )

    def _update(
        self,
        parameters: Tensor,
        velocity: Tensor,
        low_copy: Tensor,
        gradients: Tensor,
        split: int,
        pixels: int,
        chunk: int,
        *,
        low: bool,
    ) -> None:
        work, spec, size = self.work, self.layout.spec, parameters.shape[1]
        update[triton.cdiv(size, 1024), self.layout.lanes](
            parameters,
            velocity,
            low_copy,
            gradients,
            work.rates,
            work.healthy,
            work.counts,
            parameters.stride(0),
            gradients.stride(0),
            split,
            low_copy.stride(0),
            size,
            pixels,
            chunk,
            spec.weight_decay,
            spec.momentum,
            spec.nesterov,
            low,
            1024,
        )
