"""Kernels of the last layer, the update and the backward pass. A program belongs to one lane."""

from __future__ import annotations

import triton
import triton.language as tl

from poisonproof.networks.fused.forward_kernels import add_pairs, store_piece

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call"
# mypy: allow-untyped-decorators


@triton.jit
def pooled_features(
    z_ptr,
    scale_ptr,
    shift_ptr,
    out_ptr,
    counts_ptr,
    Z_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    ROWS: tl.constexpr,
    PIXELS: tl.constexpr,
    C: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Batch norm, ReLU and the mean over pixels: one feature vector per row."""
    lane = tl.program_id(1).to(tl.int64)
    BLOCKS: tl.constexpr = C // BC
    row = tl.program_id(0) // BLOCKS
    if row >= tl.load(counts_ptr + lane):
        return
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    s = tl.load(scale_ptr + lane * S_LANE + c)[None, :]
    h = tl.load(shift_ptr + lane * S_LANE + c)[None, :]
    total = tl.zeros([BC], dtype=tl.float32)
    for start in range(0, PIXELS, BP):
        p = start + tl.arange(0, BP)
        live = (p < PIXELS)[:, None]
        place = (row * PIXELS + p)[:, None] * C + c[None, :]
        z = tl.load(z_ptr + lane * Z_LANE + place, mask=live, other=0.0)
        value = tl.maximum(z.to(tl.float32) * s + h, 0.0)
        total += tl.sum(tl.where(live, value, 0.0), axis=0)
    tl.store(out_ptr + (lane * ROWS + row) * C + c, total / PIXELS)


@triton.jit
def head(
    f_ptr,
    w_ptr,
    b_ptr,
    target_ptr,
    score_ptr,
    gw_ptr,
    gb_ptr,
    gf_ptr,
    loss_ptr,
    healthy_ptr,
    counts_ptr,
    W_LANE: tl.constexpr,
    ROWS: tl.constexpr,
    C: tl.constexpr,
    BC: tl.constexpr,
    CLASSES: tl.constexpr,
    CP: tl.constexpr,
    TRAIN: tl.constexpr,
):
    """Scores of a lane's rows; in training also the loss, and the gradients up to the features."""
    lane = tl.program_id(0).to(tl.int64)
    n = tl.load(counts_ptr + lane)
    if n == 0:
        return
    r = tl.arange(0, ROWS)
    j = tl.arange(0, CP)
    ok = (r < n)[:, None]
    f_ptr += lane * (ROWS * C)
    w_ptr += lane * W_LANE
    scores = tl.zeros([ROWS, CP], dtype=tl.float32)
    for start in tl.static_range(0, C, BC):
        c = start + tl.arange(0, BC)
        f = tl.load(f_ptr + r[:, None] * C + c[None, :], mask=ok, other=0.0)
        w = tl.load(w_ptr + c[:, None] * CP + j[None, :])
        scores = tl.dot(f, w, scores, input_precision="ieee")
    scores += tl.load(b_ptr + lane * W_LANE + j)[None, :]
    place = lane * (ROWS * CP) + r[:, None] * CP + j[None, :]
    if not TRAIN:
        tl.store(score_ptr + place, scores, mask=ok)
        return
    scores = tl.where((j < CLASSES)[None, :], scores, -float("inf"))
    top = tl.max(scores, axis=1)
    grown = tl.exp(scores - top[:, None])
    norm = tl.sum(grown, axis=1)
    target = tl.load(target_ptr + place, mask=ok, other=0.0)
    log_p = tl.where((j < CLASSES)[None, :], scores - (top + tl.log(norm))[:, None], 0.0)
    per_row = -tl.sum(target * log_p, axis=1)
    loss = tl.sum(tl.where(r < n, per_row, 0.0), axis=0) / n
    finite = (loss - loss) == 0.0
    tl.store(loss_ptr + lane, loss)
    was = tl.load(healthy_ptr + lane)
    tl.store(healthy_ptr + lane, tl.where(finite, was, 0))
    d = tl.where(ok, (grown / norm[:, None] - target) / n, 0.0)
    tl.store(gb_ptr + lane * W_LANE + j, tl.sum(d, axis=0))
    for start in tl.static_range(0, C, BC):
        c = start + tl.arange(0, BC)
        f = tl.load(f_ptr + r[:, None] * C + c[None, :], mask=ok, other=0.0)
        w = tl.load(w_ptr + c[:, None] * CP + j[None, :])
        gw = tl.dot(tl.trans(f), d, input_precision="ieee")
        tl.store(gw_ptr + lane * W_LANE + c[:, None] * CP + j[None, :], gw)
        gf = tl.dot(d, tl.trans(w), input_precision="ieee")
        tl.store(gf_ptr + lane * (ROWS * C) + r[:, None] * C + c[None, :], gf, mask=ok)


@triton.jit
def update(
    p_ptr,
    v_ptr,
    low_ptr,
    grad_ptr,
    rate_ptr,
    healthy_ptr,
    counts_ptr,
    W_LANE: tl.constexpr,
    G_LANE: tl.constexpr,
    G_SPLIT: tl.constexpr,
    LOW_LANE: tl.constexpr,
    SIZE: tl.constexpr,
    PIXELS: tl.constexpr,
    CHUNK: tl.constexpr,
    DECAY: tl.constexpr,
    MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    LOW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """SGD on one stretch of a lane's table; sums the chunks of the gradient in their order."""
    lane = tl.program_id(1).to(tl.int64)
    n = tl.load(counts_ptr + lane)
    if (n == 0) | (tl.load(healthy_ptr + lane) == 0):
        return
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < SIZE
    grad_ptr += lane * G_LANE + i
    g = tl.load(grad_ptr, mask=ok, other=0.0)
    chunks = (n * PIXELS + CHUNK - 1) // CHUNK
    for chunk in range(1, chunks):
        g += tl.load(grad_ptr + chunk * G_SPLIT, mask=ok, other=0.0)
    place = lane * W_LANE + i
    p = tl.load(p_ptr + place, mask=ok, other=0.0)
    g += DECAY * p
    v = tl.load(v_ptr + place, mask=ok, other=0.0) * MOMENTUM + g
    step = g + MOMENTUM * v if NESTEROV else v
    p -= tl.load(rate_ptr + lane) * step
    tl.store(v_ptr + place, v, mask=ok)
    tl.store(p_ptr + place, p, mask=ok)
    if LOW:
        tl.store(low_ptr + lane * LOW_LANE + i, p.to(low_ptr.dtype.element_ty), mask=ok)


# The convolutions and batch norms.


@triton.jit
def conv_input_grad(
    d_ptr,
    w_ptr,
    g_ptr,
    counts_ptr,
    D_LANE: tl.constexpr,
    W_LANE: tl.constexpr,
    G_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    WIDTH: tl.constexpr,
    IMAGE: tl.constexpr,
    LINE: tl.constexpr,
    SIDE: tl.constexpr,
    CIN: tl.constexpr,
    COUT: tl.constexpr,
    RUNP: tl.constexpr,
    N0: tl.constexpr,
    N1: tl.constexpr,
    N2: tl.constexpr,
    FLAT: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradient of a convolution's input: the same product over windows, with W reversed."""
    lane = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    rows = tl.load(counts_ptr + lane) * PIXELS
    if tile * BM >= rows:
        return
    m = tile * BM + tl.arange(0, BM)
    ok = m < rows
    if FLAT:
        base = m * COUT
    else:
        p = m % PIXELS
        base = (m // PIXELS) * IMAGE + (p // WIDTH) * LINE + (p % WIDTH) * COUT
    k = tl.arange(0, BK)
    d_ptr += lane * D_LANE
    w_ptr += lane * W_LANE
    BLOCKS: tl.constexpr = COUT // BK
    acc0 = tl.zeros([BM, N0], dtype=tl.float32)
    if N1 > 0:
        acc1 = tl.zeros([BM, N1], dtype=tl.float32)
    if N2 > 0:
        acc2 = tl.zeros([BM, N2], dtype=tl.float32)
    for t in tl.range(0, SIDE * SIDE * BLOCKS, num_stages=STAGES):
        tap = t // BLOCKS
        dy = tap // SIDE
        dx = tap % SIDE
        cut = (t % BLOCKS) * BK
        inner = dy * LINE + dx * COUT + cut
        a = tl.load(d_ptr + base[:, None] + (inner + k)[None, :], mask=ok[:, None], other=0.0)
        row = (SIDE - 1 - dy) * RUNP + (SIDE - 1 - dx) * CIN
        b_ptr = w_ptr + row * COUT + (cut + k)[:, None]
        acc0 = tl.dot(a, tl.load(b_ptr + tl.arange(0, N0)[None, :] * COUT), acc0)
        if N1 > 0:
            acc1 = tl.dot(a, tl.load(b_ptr + (N0 + tl.arange(0, N1))[None, :] * COUT), acc1)
        if N2 > 0:
            acc2 = tl.dot(a, tl.load(b_ptr + (N0 + N1 + tl.arange(0, N2))[None, :] * COUT), acc2)
    g_ptr += lane * G_LANE
    store_piece(acc0, m, ok, g_ptr, 0, CIN, N0)
    if N1 > 0:
        store_piece(acc1, m, ok, g_ptr, N0, CIN, N1)
    if N2 > 0:
        store_piece(acc2, m, ok, g_ptr, N0 + N1, CIN, N2)


@triton.jit
def conv_weight_grad(  # noqa: PLR0915 - one kernel, one function
    x_ptr,
    d_ptr,
    out_ptr,
    scale_ptr,
    shift_ptr,
    counts_ptr,
    X_LANE: tl.constexpr,
    D_LANE: tl.constexpr,
    O_LANE: tl.constexpr,
    O_SPLIT: tl.constexpr,
    S_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    WIDTH: tl.constexpr,
    IMAGE: tl.constexpr,
    LINE: tl.constexpr,
    CIN: tl.constexpr,
    D_IMAGE: tl.constexpr,
    D_LINE: tl.constexpr,
    D_CENTRE: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
    RUNP: tl.constexpr,
    COUT: tl.constexpr,
    N0: tl.constexpr,
    N1: tl.constexpr,
    N2: tl.constexpr,
    FLAT: tl.constexpr,
    PRO: tl.constexpr,
    CHUNK: tl.constexpr,
    BI: tl.constexpr,
    BM: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Gradient of the weights over one chunk of rows; chunks are summed by the update."""
    lane = tl.program_id(1).to(tl.int64)
    rows = tl.load(counts_ptr + lane) * PIXELS
    TILES: tl.constexpr = (RUNP + BI - 1) // BI
    split = tl.program_id(0) // (RUNS * TILES)
    run = tl.program_id(0) % (RUNS * TILES) // TILES
    first = (tl.program_id(0) % TILES) * BI
    if split * CHUNK >= rows:
        return
    stop = tl.minimum(rows, (split + 1) * CHUNK)
    i = first + tl.arange(0, BI)
    real = i < RUN
    x_ptr += lane * X_LANE + run * LINE
    d_ptr += lane * D_LANE + D_CENTRE
    if PRO:
        s = tl.load(scale_ptr + lane * S_LANE + i, mask=real, other=0.0)
        h = tl.load(shift_ptr + lane * S_LANE + i, mask=real, other=0.0)
    acc0 = tl.zeros([BI, N0], dtype=tl.float32)
    if N1 > 0:
        acc1 = tl.zeros([BI, N1], dtype=tl.float32)
    if N2 > 0:
        acc2 = tl.zeros([BI, N2], dtype=tl.float32)
    for start in tl.range(split * CHUNK, stop, BM, num_stages=STAGES):
        m = start + tl.arange(0, BM)
        ok = m < stop
        if FLAT:
            x_base = m * CIN
            d_base = m * COUT
        else:
            p = m % PIXELS
            x_base = (m // PIXELS) * IMAGE + (p // WIDTH) * LINE + (p % WIDTH) * CIN
            d_base = (m // PIXELS) * D_IMAGE + (p // WIDTH) * D_LINE + (p % WIDTH) * COUT
        live = ok[:, None] & real[None, :]
        a = tl.load(x_ptr + x_base[:, None] + i[None, :], mask=live, other=0.0)
        if PRO:
            wide = a.to(tl.float32) * s[None, :] + h[None, :]
            a = tl.where(live, tl.maximum(wide, 0.0), 0.0).to(a.dtype)
        a = tl.trans(a)
        b_ptr = d_ptr + d_base[:, None]
        b0 = tl.load(b_ptr + tl.arange(0, N0)[None, :], mask=ok[:, None], other=0.0)
        acc0 = tl.dot(a, b0, acc0)
        if N1 > 0:
            b1 = tl.load(b_ptr + (N0 + tl.arange(0, N1))[None, :], mask=ok[:, None], other=0.0)
            acc1 = tl.dot(a, b1, acc1)
        if N2 > 0:
            b2 = tl.load(b_ptr + (N0 + N1 + tl.arange(0, N2))[None, :], mask=ok[:, None], other=0.0)
            acc2 = tl.dot(a, b2, acc2)
    inside = (i < RUNP)[:, None]
    out = out_ptr + lane * O_LANE + split * O_SPLIT + (run * RUNP + i)[:, None] * COUT
    tl.store(out + tl.arange(0, N0)[None, :], acc0, mask=inside)
    if N1 > 0:
        tl.store(out + (N0 + tl.arange(0, N1))[None, :], acc1, mask=inside)
    if N2 > 0:
        tl.store(out + (N0 + N1 + tl.arange(0, N2))[None, :], acc2, mask=inside)


@triton.jit
def norm_sums(
    part_ptr,
    mean_ptr,
    rstd_ptr,
    scale_ptr,
    factor_ptr,
    gamma_grad_ptr,
    beta_grad_ptr,
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
    """Gradients of batch norm's own parameters, and two factors for `norm_backward`."""
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
    place = lane * S_LANE + c
    mean = tl.load(mean_ptr + place)
    rstd = tl.load(rstd_ptr + place)
    scale = tl.load(scale_ptr + place)
    slope = (second / size).to(tl.float32) * rstd
    tl.store(beta_grad_ptr + lane * W_LANE + c, first.to(tl.float32))
    tl.store(gamma_grad_ptr + lane * W_LANE + c, second.to(tl.float32))
    factor_ptr += lane * (2 * S_LANE) + c
    tl.store(factor_ptr, -scale * slope)
    tl.store(factor_ptr + S_LANE, scale * (mean * slope - (first / size).to(tl.float32)))


@triton.jit
def gradient_sums(
    g_ptr,
    z_ptr,
    scale_ptr,
    shift_ptr,
    mean_ptr,
    rstd_ptr,
    part_ptr,
    counts_ptr,
    Z_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    P_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    C: tl.constexpr,
    SPAN: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Sums that batch norm's gradient needs, over spans of rows, through the ReLU."""
    lane = tl.program_id(1).to(tl.int64)
    rows = tl.load(counts_ptr + lane) * PIXELS
    BLOCKS: tl.constexpr = C // BC
    span = tl.program_id(0) // BLOCKS
    if span * SPAN >= rows:
        return
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    channel = lane * S_LANE + c
    s = tl.load(scale_ptr + channel)[None, :]
    h = tl.load(shift_ptr + channel)[None, :]
    mean = tl.load(mean_ptr + channel)[None, :]
    rstd = tl.load(rstd_ptr + channel)[None, :]
    g_ptr += lane * Z_LANE
    z_ptr += lane * Z_LANE
    first = tl.zeros([BM, BC], dtype=tl.float32)
    second = tl.zeros([BM, BC], dtype=tl.float32)
    for start in tl.range(0, SPAN, BM, num_stages=1, loop_unroll_factor=4):
        m = span * SPAN + start + tl.arange(0, BM)
        live = (m < rows)[:, None]
        place = m[:, None] * C + c[None, :]
        g = tl.load(g_ptr + place, mask=live, other=0.0).to(tl.float32)
        z = tl.load(z_ptr + place, mask=live, other=0.0).to(tl.float32)
        g = tl.where(z * s + h > 0.0, g, 0.0)
        first += g
        second += g * ((z - mean) * rstd)
    first_sum, second_sum = tl.reduce((first, second), 0, add_pairs)
    part_ptr += lane * P_LANE + span * (2 * C) + c
    tl.store(part_ptr, first_sum)
    tl.store(part_ptr + C, second_sum)


@triton.jit
def norm_backward(
    g_ptr,
    z_ptr,
    out_ptr,
    scale_ptr,
    shift_ptr,
    factor_ptr,
    counts_ptr,
    Z_LANE: tl.constexpr,
    O_LANE: tl.constexpr,
    S_LANE: tl.constexpr,
    PIXELS: tl.constexpr,
    WIDTH: tl.constexpr,
    O_IMAGE: tl.constexpr,
    O_LINE: tl.constexpr,
    CENTRE: tl.constexpr,
    C: tl.constexpr,
    FLAT: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Gradient before batch norm and ReLU, in place or into a bordered buffer."""
    lane = tl.program_id(1).to(tl.int64)
    BLOCKS: tl.constexpr = C // BC
    rows = tl.load(counts_ptr + lane) * PIXELS
    start = (tl.program_id(0) // BLOCKS) * BM
    if start >= rows:
        return
    m = start + tl.arange(0, BM)
    c = (tl.program_id(0) % BLOCKS) * BC + tl.arange(0, BC)
    ok = (m < rows)[:, None]
    place = m[:, None] * C + c[None, :]
    g = tl.load(g_ptr + lane * Z_LANE + place, mask=ok, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + lane * Z_LANE + place, mask=ok, other=0.0).to(tl.float32)
    s = tl.load(scale_ptr + lane * S_LANE + c)[None, :]
    h = tl.load(shift_ptr + lane * S_LANE + c)[None, :]
    g = tl.where(z * s + h > 0.0, g, 0.0)
    factor_ptr += lane * (2 * S_LANE) + c
    slope = tl.load(factor_ptr)[None, :]
    level = tl.load(factor_ptr + S_LANE)[None, :]
    d = g * s + z * slope + level
    if not FLAT:
        p = m % PIXELS
        base = (m // PIXELS) * O_IMAGE + (p // WIDTH) * O_LINE + (p % WIDTH) * C + CENTRE
        place = base[:, None] + c[None, :]
    tl.store(out_ptr + lane * O_LANE + place, d.to(out_ptr.dtype.element_ty), mask=ok)
