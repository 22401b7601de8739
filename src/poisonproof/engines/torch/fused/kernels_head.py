"""Kernels of the last layer and of the update. Every program belongs to one lane."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call"
# mypy: allow-untyped-decorators
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["head", "pooled_features", "update"]


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
