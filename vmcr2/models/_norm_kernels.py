"""Triton kernels for BatchNorm in training and the operations after it: channels last, one read and write per pass.

torch has one kernel each for statistics, normalisation, addition and ReLU, forward and backward. These passes over
memory take half of a small ResNet's step. Here y = max(scale·x + offset [+ residual], 0) takes one pass after the
statistics, and its gradient takes two. Many programs each sum a part of the samples. The last of them to finish adds
up the parts, always in one order, so that no second kernel has to start for that.

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
def channel_of(i, C):
    """The channel of a flat index. The hint (runs of 64) lets the compiler read tables in whole vectors."""
    return tl.max_contiguous(tl.multiple_of(i & (C - 1), 64), 64)


@triton.jit
def hand_in(a, b, partial, counter, part, channel, C):
    """Store both sums of a part, (parts, 2, C). True in the last program of these channels: all parts are there.

    The barrier collects the stores of all threads before the one that counts. Counting releases these stores, and
    acquires those of the other programs. The last one sets the counter back to 0, for the next launch.
    """
    tl.store(partial + part * 2 * C + channel, tl.sum(a, 0))
    tl.store(partial + part * 2 * C + C + channel, tl.sum(b, 0))
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def total(partial, parts, channel, C, PARTS: tl.constexpr):
    """Both sums over all parts. Other programs wrote them: .cg reads past the cache of this multiprocessor."""
    a = tl.zeros((PARTS, channel.shape[0]), tl.float32)
    b = tl.zeros((PARTS, channel.shape[0]), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        where = partial + part[:, None] * 2 * C + channel[None, :]
        there = (part < parts)[:, None]
        a += tl.load(where, mask=there, other=0.0, cache_modifier=".cg")
        b += tl.load(where + C, mask=there, other=0.0, cache_modifier=".cg")
    return tl.sum(a, 0), tl.sum(b, 0)


@triton.jit
def keep_statistics(
    mean, variance, weight, bias, running_mean, running_var, batches, table, channel, rows, momentum, eps, C
):
    """Mean, 1/deviation, scale and offset into the table, (4, C). Updates the running statistics."""
    inverse = tl.rsqrt(variance + eps)
    scale = tl.load(weight + channel) * inverse
    offset = tl.load(bias + channel) - mean * scale
    tl.store(table + channel, mean)
    tl.store(table + C + channel, inverse)
    tl.store(table + 2 * C + channel, scale)
    tl.store(table + 3 * C + channel, offset)
    old_mean = tl.load(running_mean + channel)
    old_var = tl.load(running_var + channel)
    unbiased = variance * rows / tl.maximum(rows - 1, 1)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + channel, old_var + momentum * (unbiased - old_var))
    if tl.min(channel, 0) == 0:
        tl.store(batches, tl.load(batches) + 1)
    return scale, offset


@triton.jit
def summand(x, addend, where, inside, ADD: tl.constexpr):
    """x, or x + addend as a tensor of that type would have it."""
    v = tl.load(x + where, mask=inside, other=0.0)
    if ADD:
        v = (v.to(tl.float32) + tl.load(addend + where, mask=inside, other=0.0).to(tl.float32)).to(v.dtype)
    return v


@triton.jit(do_not_specialize=["rows", "per_part"])
def statistics(
    x,
    addend,
    out,
    partial,
    counters,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    table,
    rows,
    per_part,
    momentum,
    eps,
    C,
    ADD: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Σ(x − x₀) and Σ(x − x₀)² of a part; from all parts the table. Subtracting the first row x₀ avoids cancellation.

    With ADD, ``out`` = x + addend is computed on the way, and is what the statistics are of.
    """
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    origin = summand(x, addend, channel, channel >= 0, ADD).to(tl.float32)
    a = tl.zeros((ROWS, CHANNELS), tl.float32)
    b = tl.zeros((ROWS, CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in tl.range(part * per_part, last, ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        where = row[:, None] * C + channel[None, :]
        v = summand(x, addend, where, inside, ADD)
        if ADD:
            tl.store(out + where, v, mask=inside)
        v = tl.where(inside, v.to(tl.float32) - origin[None, :], 0.0)
        a += v
        b += v * v
    if hand_in(a, b, partial, counters + tl.program_id(1), part, channel, C):
        first_sum, second_sum = total(partial, tl.num_programs(0), channel, C, PARTS)
        shift = first_sum / rows
        variance = tl.maximum(second_sum / rows - shift * shift, 0.0)
        keep_statistics(
            origin + shift,
            variance,
            weight,
            bias,
            running_mean,
            running_var,
            batches,
            table,
            channel,
            rows,
            momentum,
            eps,
            C,
        )


@triton.jit
def apply(x, residual, y, table, total, C, RELU: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    """scale·x + offset, plus the residual, then ReLU."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = channel_of(i, C)
    value = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.load(table + 2 * C + channel) + tl.load(table + 3 * C + channel)
    if RESIDUAL:
        value += tl.load(residual + i, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + i, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def through_relu(g, v, y, where, inside, scale, offset, RELU: tl.constexpr, RESIDUAL: tl.constexpr):
    """The gradient where the output was above 0. The output is read if a residual was added, else recomputed from x."""
    if RELU:
        if RESIDUAL:
            open_ = tl.load(y + where, mask=inside, other=0.0) > 0
        else:
            open_ = v * scale + offset > 0
        g = tl.where(open_, g, 0.0)
    return g


@triton.jit
def finish_backward(partial, counter, a, b, part, by_weight, by_bias, means, channel, rows, C, PARTS: tl.constexpr):
    """From all parts ∂/∂weight = Σg·x̂ and ∂/∂bias = Σg; and both divided by the number of rows, (2, C)."""
    if hand_in(a, b, partial, counter, part, channel, C):
        first_sum, second_sum = total(partial, tl.num_programs(0), channel, C, PARTS)
        tl.store(by_bias + channel, first_sum)
        tl.store(by_weight + channel, second_sum)
        tl.store(means + channel, first_sum / rows)
        tl.store(means + C + channel, second_sum / rows)


@triton.jit(do_not_specialize=["rows", "per_part"])
def backward_sums(
    gradient,
    second,
    x,
    y,
    stored,
    table,
    partial,
    counters,
    by_weight,
    by_bias,
    means,
    rows,
    per_part,
    C,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    TWO: tl.constexpr,
    STORE: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Σg and Σg·x̂: g is the gradient through the ReLU, x̂ the normalised x. With TWO, g comes from two tensors.

    With STORE, g is kept. It is the gradient of the residual, and all that ``backward_apply`` then has to read but x.
    """
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mean = tl.load(table + channel)[None, :]
    inverse = tl.load(table + C + channel)[None, :]
    scale = tl.load(table + 2 * C + channel)[None, :]
    offset = tl.load(table + 3 * C + channel)[None, :]
    a = tl.zeros((ROWS, CHANNELS), tl.float32)
    b = tl.zeros((ROWS, CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in tl.range(part * per_part, last, ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        where = row[:, None] * C + channel[None, :]
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        g = summand(gradient, second, where, inside, TWO).to(tl.float32)
        g = through_relu(g, v, y, where, inside, scale, offset, RELU, RESIDUAL)
        if STORE:
            tl.store(stored + where, g.to(stored.dtype.element_ty), mask=inside)
        a += g
        b += g * (v - mean) * inverse
    finish_backward(
        partial, counters + tl.program_id(1), a, b, part, by_weight, by_bias, means, channel, rows, C, PARTS
    )


@triton.jit
def gradient_of_x(g, v, table, means, channel, C):
    """scale·(g − mean g − x̂·mean(g·x̂))."""
    normalised = (v - tl.load(table + channel)) * tl.load(table + C + channel)
    centred = g - tl.load(means + channel) - normalised * tl.load(means + C + channel)
    return tl.load(table + 2 * C + channel) * centred


@triton.jit
def backward_apply(
    gradient,
    x,
    skip,
    table,
    means,
    by_x,
    total,
    C,
    RELU: tl.constexpr,
    SKIP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of x; with SKIP, plus the one that x gets past the norm. ``by_x`` may be ``gradient`` itself."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = channel_of(i, C)
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + i, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        scale = tl.load(table + 2 * C + channel)
        offset = tl.load(table + 3 * C + channel)
        g = through_relu(g, v, x, i, inside, scale, offset, True, False)
    value = gradient_of_x(g, v, table, means, channel, C)
    if SKIP:
        value += tl.load(skip + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(by_x + i, value.to(by_x.dtype.element_ty), mask=inside)
