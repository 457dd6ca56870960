"""Triton kernels for BatchNorm, ReLU and max-pooling 3×3 (stride 2, padding 1) in one; see ``_norm_kernels``."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl

from ._norm_kernels import channel_of, finish_backward, gradient_of_x


@triton.jit
def pool_apply(x, y, taken, table, total, H: tl.constexpr, W: tl.constexpr, C, BLOCK: tl.constexpr):
    """max(scale·x + offset, 0), then max-pooling. ``taken`` is the chosen tap, 9 for none."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = channel_of(i, C)
    row = i // C
    column = row % (W // 2)
    line = (row // (W // 2)) % (H // 2)
    image = row // ((W // 2) * (H // 2))
    scale = tl.load(table + 2 * C + channel)
    offset = tl.load(table + 3 * C + channel)
    best = tl.zeros((BLOCK,), tl.float32)
    place = tl.full((BLOCK,), 9, tl.int32)
    for tap in tl.static_range(9):
        at_y = line * 2 - 1 + tap // 3
        at_x = column * 2 - 1 + tap % 3
        visible = inside & (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W)
        v = tl.load(x + ((image * H + at_y) * W + at_x) * C + channel, mask=visible, other=0.0).to(tl.float32)
        v = v * scale + offset
        better = visible & (v > best)
        best = tl.where(better, v, best)
        place = tl.where(better, tap, place)
    tl.store(y + i, best.to(y.dtype.element_ty), mask=inside)
    tl.store(taken + i, place.to(tl.uint8), mask=inside)


@triton.jit
def _from_pool(gradient, taken, image, at_y, at_x, channel, inside, H: tl.constexpr, W: tl.constexpr, C):
    """The gradient at a position: the sum over the windows that chose it, one or two in each direction."""
    g = tl.zeros(inside.shape, tl.float32)
    for second in tl.static_range(4):
        line = ((at_y + 1) >> 1) - second // 2
        column = ((at_x + 1) >> 1) - second % 2
        tap_y = at_y + 1 - 2 * line
        tap_x = at_x + 1 - 2 * column
        there = inside & (line >= 0) & (line < H // 2) & (column >= 0) & (column < W // 2) & (tap_y < 3) & (tap_x < 3)
        where = ((image * (H // 2) + line) * (W // 2) + column) * C + channel
        chosen = tl.load(taken + where, mask=there, other=9).to(tl.int32) == tap_y * 3 + tap_x
        g += tl.load(gradient + where, mask=there & chosen, other=0.0).to(tl.float32)
    return g


@triton.jit(do_not_specialize=["rows", "per_part"])
def pool_backward_sums(
    gradient,
    x,
    taken,
    table,
    partial,
    counters,
    by_weight,
    by_bias,
    means,
    rows,
    per_part,
    H: tl.constexpr,
    W: tl.constexpr,
    C,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Σg and Σg·x̂: g is the gradient through pool and ReLU."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean = tl.load(table + channel)[None, :]
    inverse = tl.load(table + C + channel)[None, :]
    a = tl.zeros((ROWS, CHANNELS), tl.float32)
    b = tl.zeros((ROWS, CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in range(part * per_part, last, ROWS):
        row = (first + tl.arange(0, ROWS))[:, None]
        inside = (row < last) & (channel >= 0)[None, :]
        v = tl.load(x + row * C + channel[None, :], mask=inside, other=0.0).to(tl.float32)
        image, at_y, at_x = row // (H * W), (row // W) % H, row % W
        g = _from_pool(gradient, taken, image, at_y, at_x, channel[None, :], inside, H, W, C)
        a += g
        b += g * (v - mean) * inverse
    finish_backward(
        partial, counters + tl.program_id(1), a, b, part, by_weight, by_bias, means, channel, rows, C, PARTS
    )


@triton.jit
def pool_backward_apply(
    gradient, x, taken, table, means, by_x, total, H: tl.constexpr, W: tl.constexpr, C, BLOCK: tl.constexpr
):
    """The gradient of x."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = channel_of(i, C)
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    row = i // C
    g = _from_pool(gradient, taken, row // (H * W), (row // W) % H, row % W, channel, inside, H, W, C)
    tl.store(by_x + i, gradient_of_x(g, v, table, means, channel, C).to(by_x.dtype.element_ty), mask=inside)
