"""BatchNorm and what follows it in one Triton kernel each way, for inputs of few rows; see ``_norm_kernels``.

Such a tensor is in the cache, and starting a kernel takes longer than computing with it. Here a program has all rows of
a few channels in its registers: it reads them once.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl

from ._norm_kernels import keep_statistics, summand, through_relu


@triton.jit(do_not_specialize=["rows"])
def small_forward(
    x,
    addend,
    residual,
    out,
    y,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    table,
    rows,
    momentum,
    eps,
    C,
    ADD: tl.constexpr,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Statistics, table, running statistics and y; with ADD of ``out`` = x + addend, which is kept."""
    row = tl.arange(0, ROWS)
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = (row < rows)[:, None]
    where = row[:, None] * C + channel[None, :]
    v = summand(x, addend, where, inside, ADD)
    if ADD:
        tl.store(out + where, v, mask=inside)
    v = v.to(tl.float32)
    mean = tl.sum(v, 0) / rows  # rows that are not inside are 0
    away = tl.where(inside, v - mean[None, :], 0.0)
    variance = tl.sum(away * away, 0) / rows
    scale, offset = keep_statistics(
        mean, variance, weight, bias, running_mean, running_var, batches, table, channel, rows, momentum, eps, C
    )
    value = v * scale[None, :] + offset[None, :]
    if RESIDUAL:
        value += tl.load(residual + where, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + where, value.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def small_backward(
    gradient,
    second,
    x,
    y,
    skip,
    table,
    by_x,
    by_residual,
    by_weight,
    by_bias,
    rows,
    C,
    RELU: tl.constexpr,
    RESIDUAL: tl.constexpr,
    TWO: tl.constexpr,
    SKIP: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """All gradients: of weight and bias, of x (with SKIP plus the one that x gets past the norm), of the residual."""
    row = tl.arange(0, ROWS)
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = (row < rows)[:, None]
    where = row[:, None] * C + channel[None, :]
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    g = summand(gradient, second, where, inside, TWO).to(tl.float32)
    scale = tl.load(table + 2 * C + channel)[None, :]
    offset = tl.load(table + 3 * C + channel)[None, :]
    g = through_relu(g, v, y, where, inside, scale, offset, RELU, RESIDUAL)
    if RESIDUAL:
        tl.store(by_residual + where, g.to(by_residual.dtype.element_ty), mask=inside)
    normalised = (v - tl.load(table + channel)[None, :]) * tl.load(table + C + channel)[None, :]
    first_sum = tl.sum(g, 0)  # rows that are not inside have no gradient
    second_sum = tl.sum(g * normalised, 0)
    tl.store(by_bias + channel, first_sum)
    tl.store(by_weight + channel, second_sum)
    value = scale * (g - (first_sum / rows)[None, :] - normalised * (second_sum / rows)[None, :])
    if SKIP:
        value += tl.load(skip + where, mask=inside, other=0.0).to(tl.float32)
    tl.store(by_x + where, value.to(by_x.dtype.element_ty), mask=inside)
