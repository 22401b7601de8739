"""Kernels of the forward pass. Every program belongs to one lane and reads that lane alone.

The grid's second axis is the lane. How many rows a lane holds is read from memory, so no launch
parameter depends on data, and programs without rows leave at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call"
# mypy: allow-untyped-decorators


@triton.jit
def columns(
    x_ptr,
    mean_ptr,
    std_ptr,
    out_ptr,
    counts_ptr,
    x_lane,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    SIDE: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    OUT_LANE: tl.constexpr,
    BM: tl.constexpr,
):
    """Normalise images (rows, C, H, W) and lay the first convolution's windows out as rows."""
    lane = tl.program_id(1).to(tl.int64)
    rows = tl.load(counts_ptr + lane) * (H * W)
    start = tl.program_id(0) * BM
    if start >= rows:
        return
    m = start + tl.arange(0, BM)
    ok = m < rows
    row = m // (H * W)
    y = (m % (H * W)) // W
    x = m % W
    x_ptr += lane * x_lane
    for start_k in tl.static_range(0, KP, 32):
        k = start_k + tl.arange(0, 32)
        c = k % C
        dy = k // C // SIDE - SIDE // 2
        dx = k // C % SIDE - SIDE // 2
        iy = y[:, None] + dy[None, :]
        ix = x[:, None] + dx[None, :]
        inside = ok[:, None] & (k < K)[None, :] & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
        place = row[:, None] * (C * H * W) + c[None, :] * (H * W) + iy * W + ix
        value = tl.load(x_ptr + place, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + lane * C + c)
        std = tl.load(std_ptr + lane * C + c)
        value = tl.where(inside, (value - mean[None, :]) / std[None, :], 0.0)
        target = out_ptr + lane * OUT_LANE + m[:, None] * KP + k[None, :]
        tl.store(target, value.to(out_ptr.dtype.element_ty), mask=ok[:, None])


@triton.jit
def add_pairs(a0, b0, a1, b1):
    """Add two sums at once: one pass through shared memory instead of two."""
    return a0 + a1, b0 + b1


@triton.jit
def store_piece(acc, m, ok, out_ptr, first, WIDTH: tl.constexpr, N: tl.constexpr):
    """Store columns `first` to ``first + N`` of some rows of a product."""
    n = first + tl.arange(0, N)
    place = m[:, None] * WIDTH + n[None, :]
    tl.store(out_ptr + place, acc.to(out_ptr.dtype.element_ty), mask=ok[:, None])


@triton.jit
def conv_forward(
    x_ptr,
    w_ptr,
    z_ptr,
    scale_ptr,
    shift_ptr,
    counts_ptr,
    X_LANE: tl.constexpr,
    W_LANE: tl.constexpr,
    Z_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    WIDTH: tl.constexpr,
    IMAGE: tl.constexpr,
    LINE: tl.constexpr,
    CIN: tl.constexpr,
    RUNS: tl.constexpr,
    RUNP: tl.constexpr,
    COUT: tl.constexpr,
    N0: tl.constexpr,
    N1: tl.constexpr,
    N2: tl.constexpr,
    FLAT: tl.constexpr,
    PRO: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Z = W * input, with the batch norm and ReLU of the unit before applied on the way in."""
    lane = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    rows = tl.load(counts_ptr + lane) * PIXELS
    if tile * BM >= rows:
        return
    m = tile * BM + tl.arange(0, BM)
    ok = m < rows
    if FLAT:
        base = m * CIN
    else:
        p = m % PIXELS
        base = (m // PIXELS) * IMAGE + (p // WIDTH) * LINE + (p % WIDTH) * CIN
    k = tl.arange(0, BK)
    x_ptr += lane * X_LANE
    w_ptr += lane * W_LANE
    scale_ptr += lane * S_LANE
    shift_ptr += lane * S_LANE
    BLOCKS: tl.constexpr = RUNP // BK
    acc0 = tl.zeros([BM, N0], dtype=tl.float32)
    if N1 > 0:
        acc1 = tl.zeros([BM, N1], dtype=tl.float32)
    if N2 > 0:
        acc2 = tl.zeros([BM, N2], dtype=tl.float32)
    for t in tl.range(0, RUNS * BLOCKS, num_stages=STAGES):
        inner = (t // BLOCKS) * LINE + (t % BLOCKS) * BK
        a = tl.load(x_ptr + base[:, None] + (inner + k)[None, :], mask=ok[:, None], other=0.0)
        if PRO:
            channel = t * BK + k
            s = tl.load(scale_ptr + channel)
            h = tl.load(shift_ptr + channel)
            wide = a.to(tl.float32) * s[None, :] + h[None, :]
            a = tl.maximum(wide, 0.0).to(a.dtype)
        b_ptr = w_ptr + (t * BK + k)[:, None] * COUT
        acc0 = tl.dot(a, tl.load(b_ptr + tl.arange(0, N0)[None, :]), acc0)
        if N1 > 0:
            acc1 = tl.dot(a, tl.load(b_ptr + (N0 + tl.arange(0, N1))[None, :]), acc1)
        if N2 > 0:
            acc2 = tl.dot(a, tl.load(b_ptr + (N0 + N1 + tl.arange(0, N2))[None, :]), acc2)
    z_ptr += lane * Z_LANE
    store_piece(acc0, m, ok, z_ptr, 0, COUT, N0)
    if N1 > 0:
        store_piece(acc1, m, ok, z_ptr, N0, COUT, N1)
    if N2 > 0:
        store_piece(acc2, m, ok, z_ptr, N0 + N1, COUT, N2)


@triton.jit
def column_sums(
    z_ptr,
    part_ptr,
    counts_ptr,
    Z_LANE: tl.constexpr,
    P_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    C: tl.constexpr,
    SPAN: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Sums and sums of squares of a unit's output over spans of rows.

    A pass of its own: as an epilogue of the product, its barriers cost more than reading again.
    """
    lane = tl.program_id(1).to(tl.int64)
    rows = tl.load(counts_ptr + lane) * PIXELS
    BLOCKS: tl.constexpr = C // BC
    span = tl.program_id(0) // BLOCKS
    if span * SPAN >= rows:
        return
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    z_ptr += lane * Z_LANE
    first = tl.zeros([BM, BC], dtype=tl.float32)
    second = tl.zeros([BM, BC], dtype=tl.float32)
    for start in tl.range(0, SPAN, BM, num_stages=1, loop_unroll_factor=4):
        m = span * SPAN + start + tl.arange(0, BM)
        place = m[:, None] * C + c[None, :]
        z = tl.load(z_ptr + place, mask=(m < rows)[:, None], other=0.0).to(tl.float32)
        first += z
        second += z * z
    first_sum, second_sum = tl.reduce((first, second), 0, add_pairs)
    part_ptr += lane * P_LANE + span * (2 * C) + c
    tl.store(part_ptr, first_sum)
    tl.store(part_ptr + C, second_sum)


@triton.jit
def statistics(
    part_ptr,
    gamma_ptr,
    beta_ptr,
    mean_ptr,
    rstd_ptr,
    scale_ptr,
    shift_ptr,
    run_mean_ptr,
    run_var_ptr,
    counts_ptr,
    PIXELS: tl.constexpr,
    P_LANE: tl.constexpr,
    W_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    COUT: tl.constexpr,
    SPAN: tl.constexpr,
    BT: tl.constexpr,
    BC: tl.constexpr,
):
    """Batch statistics of one lane from its spans' sums, in a fixed order; running ones follow."""
    lane = tl.program_id(1).to(tl.int64)
    rows = tl.load(counts_ptr + lane) * PIXELS
    if rows == 0:
        return
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    tiles = (rows + SPAN - 1) // SPAN
    part_ptr += lane * P_LANE
    first = tl.zeros([BC], dtype=tl.float64)
    second = tl.zeros([BC], dtype=tl.float64)
    for start in range(0, tiles, BT):
        t = start + tl.arange(0, BT)
        place = part_ptr + t[:, None] * (2 * COUT) + c[None, :]
        live = (t < tiles)[:, None]
        first += tl.sum(tl.load(place, mask=live, other=0.0), axis=0).to(tl.float64)
        second += tl.sum(tl.load(place + COUT, mask=live, other=0.0), axis=0).to(tl.float64)
    size = rows.to(tl.float64)
    average = first / size
    variance = tl.maximum(second / size - average * average, 0.0)
    mean = average.to(tl.float32)
    rstd = (1.0 / tl.sqrt(variance + 1e-5)).to(tl.float32)
    place = lane * S_LANE + c
    scale = tl.load(gamma_ptr + lane * W_LANE + c) * rstd
    tl.store(mean_ptr + place, mean)
    tl.store(rstd_ptr + place, rstd)
    tl.store(scale_ptr + place, scale)
    tl.store(shift_ptr + place, tl.load(beta_ptr + lane * W_LANE + c) - mean * scale)
    unbiased = (variance * (size / tl.maximum(size - 1.0, 1.0))).to(tl.float32)
    old_mean = tl.load(run_mean_ptr + place)
    old_var = tl.load(run_var_ptr + place)
    tl.store(run_mean_ptr + place, old_mean * 0.9 + mean * 0.1)
    tl.store(run_var_ptr + place, old_var * 0.9 + unbiased * 0.1)


# The pools between blocks.


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
