"""The kernels of the forward pass, in order."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
from __future__ import annotations

import triton
from torch import Tensor

from poisonproof.engines.torch.fused.kernels_forward import (
    column_sums,
    columns,
    conv_forward,
    statistics,
)
from poisonproof.engines.torch.fused.kernels_head import head, pooled_features
from poisonproof.engines.torch.fused.kernels_pool import pool_forward
from poisonproof.engines.torch.fused.launches import STAGES, SUM_SPANS, Launches
from poisonproof.engines.torch.fused.layout import Pool, Unit
from poisonproof.engines.torch.fused.workspace import SPAN

__all__ = ["Forward"]


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
