"""Kernels of the pools between blocks. Every program belongs to one lane."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call"
# mypy: allow-untyped-decorators
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["pool_backward", "pool_forward"]


@triton.jit
def pool_forward(
    z_ptr,
    scale_ptr,
    shift_ptr,
    out_ptr,
    which_ptr,
    counts_ptr,
    Z_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    O_LANE: tl.constexpr,
    I_LANE: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    C: tl.constexpr,
    O_IMAGE: tl.constexpr,
    O_LINE: tl.constexpr,
    BORDER: tl.constexpr,
    KIND: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Batch norm, ReLU and 3/2/1 pooling (or a plain copy) into a bordered buffer."""
    lane = tl.program_id(1).to(tl.int64)
    BLOCKS: tl.constexpr = C // BC
    total = tl.load(counts_ptr + lane) * (HO * WO)
    start = (tl.program_id(0) // BLOCKS) * BP
    if start >= total:
        return
    m = start + tl.arange(0, BP)
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    ok = m < total
    row = m // (HO * WO)
    oy = m % (HO * WO) // WO
    ox = m % WO
    s = tl.load(scale_ptr + lane * S_LANE + c)[None, :]
    h = tl.load(shift_ptr + lane * S_LANE + c)[None, :]
    z_ptr += lane * Z_LANE
    if KIND == "copy":
        z = tl.load(z_ptr + m[:, None] * C + c[None, :], mask=ok[:, None], other=0.0)
        best = tl.maximum(z.to(tl.float32) * s + h, 0.0)
    else:
        best = tl.full([BP, BC], -1.0 if KIND == "max" else 0.0, dtype=tl.float32)
        which = tl.zeros([BP, BC], dtype=tl.int32)
        for tap in tl.static_range(9):
            iy = oy * 2 + tap // 3 - 1
            ix = ox * 2 + tap % 3 - 1
            live = (ok & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W))[:, None]
            place = (row * (H * W) + iy * W + ix)[:, None] * C + c[None, :]
            z = tl.load(z_ptr + place, mask=live, other=0.0)
            value = tl.maximum(z.to(tl.float32) * s + h, 0.0)
            if KIND == "max":
                better = live & (value > best)
                best = tl.where(better, value, best)
                which = tl.where(better, tap, which)
            else:
                best += tl.where(live, value, 0.0)
        if KIND == "max":
            target = which_ptr + lane * I_LANE + m[:, None] * C + c[None, :]
            tl.store(target, which.to(tl.int8), mask=ok[:, None])
        else:
            best = best / 9.0
    target = row * O_IMAGE + (oy + BORDER) * O_LINE + (ox + BORDER) * C
    place = out_ptr + lane * O_LANE + target[:, None] + c[None, :]
    tl.store(place, best.to(out_ptr.dtype.element_ty), mask=ok[:, None])


@triton.jit
def pool_backward(
    d_ptr,
    which_ptr,
    g_ptr,
    counts_ptr,
    D_LANE: tl.constexpr,
    I_LANE: tl.constexpr,
    G_LANE: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Gradient behind a pool."""
    lane = tl.program_id(1).to(tl.int64)
    BLOCKS: tl.constexpr = C // BC
    rows = tl.load(counts_ptr + lane) * (H * W)
    start = (tl.program_id(0) // BLOCKS) * BM
    if start >= rows:
        return
    m = start + tl.arange(0, BM)
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    ok = m < rows
    row = m // (H * W)
    y = m % (H * W) // W
    x = m % W
    d_ptr += lane * D_LANE
    which_ptr += lane * I_LANE
    grad = tl.zeros([BM, BC], dtype=tl.float32)
    if KIND == "mean":
        d = tl.load(d_ptr + row[:, None] * C + c[None, :], mask=ok[:, None], other=0.0)
        grad += d / (H * W)
    elif KIND == "copy":
        d = tl.load(d_ptr + m[:, None] * C + c[None, :], mask=ok[:, None], other=0.0)
        grad += d.to(tl.float32)
    else:
        for step in tl.static_range(4):
            oy = (y + step // 2) // 2
            ox = (x + step % 2) // 2
            # An even coordinate lies in one window only: its second candidate is the first.
            live = ok & (oy < HO) & (ox < WO)
            live = live & ((step // 2 == 0) | (y % 2 == 1)) & ((step % 2 == 0) | (x % 2 == 1))
            place = (row * (HO * WO) + oy * WO + ox)[:, None] * C + c[None, :]
            d = tl.load(d_ptr + place, mask=live[:, None], other=0.0).to(tl.float32)
            if KIND == "max":
                tap = (y - oy * 2 + 1) * 3 + (x - ox * 2 + 1)
                which = tl.load(which_ptr + place, mask=live[:, None], other=-1)
                grad += tl.where(which.to(tl.int32) == tap[:, None], d, 0.0)
            else:
                grad += d / 9.0
    place = m[:, None] * C + c[None, :]
    target = g_ptr + lane * G_LANE + place
    tl.store(target, grad.to(g_ptr.dtype.element_ty), mask=ok[:, None])
