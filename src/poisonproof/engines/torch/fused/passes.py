"""The kernels of a step, in order."""

from __future__ import annotations

import triton
from torch import Tensor

from poisonproof.engines.torch.fused.kernels_backward import (
    conv_input_grad,
    conv_weight_grad,
    norm_backward,
    norm_sums,
    pool_backward,
)
from poisonproof.engines.torch.fused.kernels_forward import (
    columns,
    conv_forward,
    pool_forward,
    statistics,
)
from poisonproof.engines.torch.fused.kernels_head import head, pooled_features, update
from poisonproof.engines.torch.fused.layout import Pool, Unit
from poisonproof.engines.torch.fused.workspace import TILE, Workspace

__all__ = ["Passes"]

_SUM_TILES = 64
_STAGES, _STAGES_GRAD = 3, 3


class Passes:
    """Forward pass, backward pass and update of all lanes of a workspace.

    Parameters
    ----------
    work : Workspace
        The lanes.
    """

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.layout = work.layout

    def _tiles(self, unit: Unit) -> int:
        return triton.cdiv(self.layout.rows * unit.pixels, TILE)

    def _low(self, unit: Unit) -> Tensor:
        return self.work.table(f"weight{unit.number}", self.work.low)

    def _input(self, unit: Unit) -> tuple[Tensor, Tensor, Tensor]:
        """Return a unit's input and the scale and shift to apply to it."""
        norm, before = self.work.norm, max(unit.number - 1, 0)
        stored = self.work.inputs[unit.number]
        source = self.work.z[before] if stored is None else stored
        return source, norm["scale"][before], norm["shift"][before]

    def forward(self, images: Tensor, *, train: bool) -> None:
        """From images to features: shape (S, rows, C, H, W), or (1, ...) for all lanes alike."""
        work, layout = self.work, self.layout
        self._columns(images)
        for unit in layout.units:
            self._convolve(unit, train)
            if train:
                self._statistics(unit)
            if unit.number in layout.pools:
                self._pool(layout.pools[unit.number])
        last, norm = layout.units[-1], work.norm
        pooled_features[layout.rows * (last.cout // 64), layout.lanes](
            work.z[-1], norm["scale"][-1], norm["shift"][-1], work.features, work.counts,
            work.z[-1].stride(0), work.width, layout.rows, last.pixels, last.cout, 64, 64,
        )
        self._head(train=train)

    def _columns(self, images: Tensor) -> None:
        work, unit = self.work, self.layout.units[0]
        target = work.inputs[0]
        assert target is not None
        stride = 0 if len(images) == 1 and self.layout.lanes > 1 else images.stride(0)
        columns[triton.cdiv(self.layout.rows * unit.pixels, 64), self.layout.lanes](
            images, work.input_mean, work.input_std, target, work.counts, stride,
            unit.cin, unit.height, unit.width, unit.side, unit.run, unit.run_padded,
            target.stride(0), 64,
        )

    def _convolve(self, unit: Unit, train: bool) -> None:
        work = self.work
        source, scale, shift = self._input(unit)
        z, low, flat = work.z[unit.number], self._low(unit), not unit.spatial
        conv_forward[self._tiles(unit), self.layout.lanes](
            source, low, z, scale, shift, work.partial, work.counts,
            source.stride(0), low.stride(0), z.stride(0), work.width, work.partial.stride(0),
            unit.pixels, unit.width, unit.image, unit.line, unit.in_channels, unit.runs,
            unit.run_padded, unit.cout, *unit.out_chunks, flat, flat and not unit.first, train,
            TILE, unit.block_k, _STAGES, num_warps=8,
        )

    def _statistics(self, unit: Unit) -> None:
        work, norm, i = self.work, self.work.norm, unit.number
        gamma, beta = work.table(f"gamma{i}"), work.table(f"beta{i}")
        statistics[unit.cout // 32, self.layout.lanes](
            work.partial, gamma, beta, norm["mean"][i], norm["rstd"][i], norm["scale"][i],
            norm["shift"][i], norm["run_mean"][i], norm["run_var"][i], work.counts,
            unit.pixels, work.partial.stride(0), gamma.stride(0), work.width, unit.cout, TILE,
            _SUM_TILES, 32,
        )

    def _pool(self, pool: Pool) -> None:
        work, i, norm = self.work, pool.after.number, self.work.norm
        z, target = work.z[i], work.inputs[i + 1]
        assert target is not None
        which = work.which.get(i, work.healthy)
        unit, after = pool.after, pool.before
        grid = triton.cdiv(self.layout.rows * pool.pixels, 32) * (unit.cout // 32)
        pool_forward[grid, self.layout.lanes](
            z, norm["scale"][i], norm["shift"][i], target, which, work.counts,
            z.stride(0), work.width, target.stride(0), which.stride(0), unit.height, unit.width,
            after.height, after.width, unit.cout, after.image, after.line, after.border, pool.kind,
            32, 32,
        )

    def _head(self, *, train: bool) -> None:
        work, layout = self.work, self.layout
        weight, grads = work.table("head"), work.gradients
        head[(layout.lanes,)](
            work.features, weight, work.table("bias"), work.targets, work.scores,
            work.table("head", grads), work.table("bias", grads), work.feature_grad, work.losses,
            work.healthy, work.counts, weight.stride(0), layout.rows, layout.units[-1].cout, 32,
            layout.spec.n_classes, layout.classes_padded, train, num_warps=8,
        )

    def backward(self) -> None:
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
        work, i, norm = self.work, unit.number, self.work.norm
        which = work.which.get(i, work.healthy)
        pool_backward[self._tiles(unit) * (unit.cout // 32), self.layout.lanes](
            grad, which, work.z[i], work.g[i], norm["scale"][i], norm["shift"][i],
            norm["mean"][i], norm["rstd"][i], work.partial, work.counts,
            grad.stride(0), which.stride(0), work.z[i].stride(0), work.width,
            work.partial.stride(0), unit.height, unit.width, high, wide, unit.cout, kind, TILE, 32,
        )

    def _norm(self, unit: Unit) -> None:
        work, i, norm = self.work, unit.number, self.work.norm
        gamma = work.table(f"gamma{i}", work.gradients)
        beta = work.table(f"beta{i}", work.gradients)
        norm_sums[unit.cout // 32, self.layout.lanes](
            work.partial, norm["mean"][i], norm["rstd"][i], norm["scale"][i], work.factors, gamma,
            beta, work.counts, unit.pixels, work.partial.stride(0), gamma.stride(0), work.width,
            unit.cout, TILE, _SUM_TILES, 32,
        )
        target = work.g[i] if work.bordered[i] is None else work.bordered[i]
        assert target is not None
        centre = unit.border * (unit.grad_line + unit.cout)
        norm_backward[triton.cdiv(self.layout.rows * unit.pixels, 64) * (unit.cout // 32),
                      self.layout.lanes](
            work.g[i], work.z[i], target, work.factors, work.counts,
            work.z[i].stride(0), target.stride(0), work.width, unit.pixels, unit.width,
            unit.grad_image, unit.grad_line, centre, unit.cout, not unit.spatial, 64, 32,
        )

    def _gradient(self, unit: Unit) -> Tensor:
        bordered = self.work.bordered[unit.number]
        return self.work.g[unit.number] if bordered is None else bordered

    def _input_grad(self, unit: Unit) -> None:
        work, before, norm = self.work, unit.number - 1, self.work.norm
        source, low = self._gradient(unit), self._low(unit)
        target = work.pooled_grad[before] if unit.spatial else work.g[before]
        z = work.z[before]
        conv_input_grad[self._tiles(unit), self.layout.lanes](
            source, low, target, z, norm["scale"][before], norm["shift"][before],
            norm["mean"][before], norm["rstd"][before], work.partial, work.counts,
            source.stride(0), low.stride(0), target.stride(0), z.stride(0), work.width,
            work.partial.stride(0), unit.pixels, unit.width, unit.grad_image, unit.grad_line,
            unit.side, unit.cin, unit.cout, unit.run_padded, *unit.in_chunks, not unit.spatial,
            not unit.spatial, TILE, 64 if unit.cout % 64 == 0 else 32, _STAGES, num_warps=8,
        )

    def _weight_grad(self, unit: Unit) -> None:
        work = self.work
        source, scale, shift = self._input(unit)
        grad, flat = self._gradient(unit), not unit.spatial
        block = 128 if unit.spatial else min(64, unit.run_padded)
        tiles = triton.cdiv(unit.run_padded, block)
        centre = unit.border * (unit.grad_line + unit.cout)
        conv_weight_grad[work.splits(unit.number) * unit.runs * tiles, self.layout.lanes](
            source, grad, work.weight_partial, scale, shift, work.counts,
            source.stride(0), grad.stride(0), work.weight_partial.stride(0), unit.weights,
            work.width, unit.pixels, unit.width, unit.image, unit.line, unit.in_channels,
            unit.grad_image, unit.grad_line, centre, unit.runs, unit.run, unit.run_padded,
            unit.cout, *unit.out_chunks, flat, flat and not unit.first, work.chunk(unit.number),
            block, 64, _STAGES_GRAD, num_warps=8 if block == 128 else 4,
        )

    def _update_convolution(self, unit: Unit) -> None:
        work = self.work
        name = f"weight{unit.number}"
        self._update(
            work.table(name), work.table(name, work.velocity), self._low(unit),
            work.weight_partial, unit.weights, unit.pixels, work.chunk(unit.number), low=True,
        )

    def _update_small(self) -> None:
        work, start = self.work, self.layout.convolution_parameters
        parameters = work.parameters[:, start:]
        self._update(
            parameters, work.velocity[:, start:], work.low, work.gradients[:, start:], 0, 1,
            self.layout.rows, low=False,
        )

    def _update(
        self, parameters: Tensor, velocity: Tensor, low_copy: Tensor, gradients: Tensor,
        split: int, pixels: int, chunk: int, *, low: bool,
    ) -> None:
        work, spec, size = self.work, self.layout.spec, parameters.shape[1]
        update[triton.cdiv(size, 1024), self.layout.lanes](
            parameters, velocity, low_copy, gradients, work.rates, work.healthy, work.counts,
            parameters.stride(0), gradients.stride(0), split, low_copy.stride(0), size, pixels,
            chunk, spec.weight_decay, spec.momentum, spec.nesterov, low, 1024,
        )
