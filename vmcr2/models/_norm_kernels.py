"""Triton kernels for BatchNorm in training and the operations after it: channels last, one read and write per pass.

torch has one kernel each for statistics, normalisation, addition, ReLU and max-pooling, forward and backward. These
passes over memory take half of a small ResNet's step. Here y = max(scale·x + offset [+ residual], 0) takes one pass
after the statistics, and its gradient takes two. Many programs each sum a part of the samples, always in one order.

Rows are positions (image, y, x), columns are channels. Every pointer is to a dense (rows, C) matrix of fewer than 2³¹
entries. C is a power of two, at least 64. C and the row counts are not compile-time constants, so that one compilation
of a kernel, about 0.3 s, serves all layers.
"""

# ruff: noqa: SIM108
# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _channel(i, C):
    """The channel of a flat index. The hint (runs of 64) lets the compiler read tables in whole vectors."""
    return tl.max_contiguous(tl.multiple_of(i & (C - 1), 64), 64)


@triton.jit
def _add_up(a, b, partial, part, channel, C):
    """Store both sums of a part; ``partial`` is (parts, 2, C)."""
    tl.store(partial + part * 2 * C + channel, tl.sum(a, 0))
    tl.store(partial + part * 2 * C + C + channel, tl.sum(b, 0))


@triton.jit
def _total(partial, which, parts, channel, C, PARTS: tl.constexpr):
    """The sum over all parts."""
    total = tl.zeros((PARTS, channel.shape[0]), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        where = part[:, None] * 2 * C + which * C + channel[None, :]
        total += tl.load(partial + where, mask=(part < parts)[:, None], other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["rows", "per_part"])
def sums(x, partial, rows, per_part, C, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Σ(x − x₀) and Σ(x − x₀)² of a part. Subtracting the first row x₀ avoids cancellation in the variance."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    origin = tl.load(x + channel).to(tl.float32)
    a = tl.zeros((ROWS, CHANNELS), tl.float32)
    b = tl.zeros((ROWS, CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in range(part * per_part, last, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        v = tl.load(x + row[:, None] * C + channel[None, :], mask=inside, other=0.0).to(tl.float32)
        v = tl.where(inside, v - origin[None, :], 0.0)
        a += v
        b += v * v
    _add_up(a, b, partial, part, channel, C)


@triton.jit(do_not_specialize=["rows", "parts"])
def finish_sums(
    x,
    partial,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    table,
    rows,
    parts,
    momentum,
    eps,
    C,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """From the sums: mean, 1/deviation, scale and offset, (4, C). Updates the running statistics."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    origin = tl.load(x + channel).to(tl.float32)
    shift = _total(partial, 0, parts, channel, C, PARTS) / rows
    mean = origin + shift
    variance = tl.maximum(_total(partial, 1, parts, channel, C, PARTS) / rows - shift * shift, 0.0)
    inverse = tl.rsqrt(variance + eps)
    scale = tl.load(weight + channel) * inverse
    tl.store(table + channel, mean)
    tl.store(table + C + channel, inverse)
    tl.store(table + 2 * C + channel, scale)
    tl.store(table + 3 * C + channel, tl.load(bias + channel) - mean * scale)
    old_mean = tl.load(running_mean + channel)
    old_var = tl.load(running_var + channel)
    unbiased = variance * rows / tl.maximum(rows - 1, 1)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + channel, old_var + momentum * (unbiased - old_var))
    if tl.program_id(0) == 0:
        tl.store(batches, tl.load(batches) + 1)


@triton.jit
def apply(x, residual, y, table, total, C, RELU: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    """scale·x + offset, plus the residual, then ReLU."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = _channel(i, C)
    value = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.load(table + 2 * C + channel) + tl.load(table + 3 * C + channel)
    if RESIDUAL:
        value += tl.load(residual + i, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + i, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _through_relu(gradient, v, y, where, inside, scale, offset, RELU: tl.constexpr, RESIDUAL: tl.constexpr):
    """The gradient where the output was above 0. The output is read if a residual was added, else recomputed from x."""
    if RELU:
        if RESIDUAL:
            open_ = tl.load(y + where, mask=inside, other=0.0) > 0
        else:
            open_ = v * scale + offset > 0
        gradient = tl.where(open_, gradient, 0.0)
    return gradient


@triton.jit(do_not_specialize=["rows", "per_part"])
def backward_sums(
    gradient,
    x,
    y,
    table,
    partial,
    rows,
    per_part,
    C,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Σg and Σg·x̂ of a part: g is the gradient through the ReLU, x̂ the normalised x."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean = tl.load(table + channel)[None, :]
    inverse = tl.load(table + C + channel)[None, :]
    scale = tl.load(table + 2 * C + channel)[None, :]
    offset = tl.load(table + 3 * C + channel)[None, :]
    a = tl.zeros((ROWS, CHANNELS), tl.float32)
    b = tl.zeros((ROWS, CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in range(part * per_part, last, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        where = row[:, None] * C + channel[None, :]
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gradient + where, mask=inside, other=0.0).to(tl.float32)
        g = _through_relu(g, v, y, where, inside, scale, offset, RELU, RESIDUAL)
        a += g
        b += g * (v - mean) * inverse
    _add_up(a, b, partial, part, channel, C)


@triton.jit(do_not_specialize=["rows", "parts"])
def finish_backward_sums(
    partial, by_weight, by_bias, means, rows, parts, C, PARTS: tl.constexpr, CHANNELS: tl.constexpr
):
    """∂/∂weight = Σg·x̂ and ∂/∂bias = Σg; and both divided by the number of rows, (2, C)."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    a = _total(partial, 0, parts, channel, C, PARTS)
    b = _total(partial, 1, parts, channel, C, PARTS)
    tl.store(by_bias + channel, a)
    tl.store(by_weight + channel, b)
    tl.store(means + channel, a / rows)
    tl.store(means + C + channel, b / rows)


@triton.jit
def _by_x(g, v, table, means, channel, C):
    """scale·(g − mean g − x̂·mean(g·x̂))."""
    normalised = (v - tl.load(table + channel)) * tl.load(table + C + channel)
    centred = g - tl.load(means + channel) - normalised * tl.load(means + C + channel)
    return tl.load(table + 2 * C + channel) * centred


@triton.jit
def backward_apply(
    gradient,
    x,
    y,
    table,
    means,
    by_x,
    by_residual,
    total,
    C,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of x and of the residual."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = _channel(i, C)
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + i, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(table + 2 * C + channel)
    offset = tl.load(table + 3 * C + channel)
    g = _through_relu(g, v, y, i, inside, scale, offset, RELU, RESIDUAL)
    if RESIDUAL:
        tl.store(by_residual + i, g.to(by_residual.dtype.element_ty), mask=inside)
    tl.store(by_x + i, _by_x(g, v, table, means, channel, C).to(by_x.dtype.element_ty), mask=inside)


@triton.jit
def pool_apply(x, y, taken, table, total, H: tl.constexpr, W: tl.constexpr, C, BLOCK: tl.constexpr):
    """max(scale·x + offset, 0), then max-pooling 3×3, stride 2, padding 1. ``taken`` is the chosen tap, 9 for none."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = _channel(i, C)
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
    rows,
    per_part,
    H: tl.constexpr,
    W: tl.constexpr,
    C,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Σg and Σg·x̂ of a part: g is the gradient through pool and ReLU."""
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
    _add_up(a, b, partial, part, channel, C)


@triton.jit
def pool_backward_apply(
    gradient, x, taken, table, means, by_x, total, H: tl.constexpr, W: tl.constexpr, C, BLOCK: tl.constexpr
):
    """The gradient of x."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = _channel(i, C)
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    row = i // C
    g = _from_pool(gradient, taken, row // (H * W), (row // W) % H, row % W, channel, inside, H, W, C)
    tl.store(by_x + i, _by_x(g, v, table, means, channel, C).to(by_x.dtype.element_ty), mask=inside)
