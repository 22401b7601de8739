"""The kernels of the backward pass and of the update, in order."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
from __future__ import annotations

import triton
from torch import Tensor

from poisonproof.engines.torch.fused.kernels_backward import (
    conv_input_grad,
    conv_weight_grad,
    gradient_sums,
    norm_backward,
    norm_sums,
)
from poisonproof.engines.torch.fused.kernels_head import update
from poisonproof.engines.torch.fused.kernels_pool import pool_backward
from poisonproof.engines.torch.fused.launches import STAGES, SUM_SPANS, Launches
from poisonproof.engines.torch.fused.layout import Unit
from poisonproof.engines.torch.fused.workspace import SPAN

__all__ = ["Backward"]


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
