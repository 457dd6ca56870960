"""Triton kernels for BatchNorm, ReLU and max-pooling 3×3 (stride 2, padding 1) in one; see ``_norm_kernels``."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pool_apply(
    x,
    y,
    taken,
    chosen,
    table,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    C,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """max(scale·x + offset, 0), then max-pooling. ``taken`` is the tap of the largest value, 9 for none above 0.

    ``chosen`` is x there: the sums of the backward pass then need no more than the windows.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = row < rows
    line, column = (row // (W // 2)) % (H // 2), row % (W // 2)
    corner = (row // ((W // 2) * (H // 2)) * H + line * 2) * W + column * 2
    scale = tl.load(table + 2 * C + channel)[None, :]
    offset = tl.load(table + 3 * C + channel)[None, :]
    # the centre is always inside the picture: if no value is above 0, neither is its own
    raw = tl.load(x + corner[:, None] * C + channel[None, :], mask=inside[:, None], other=0.0)
    best = tl.maximum(raw.to(tl.float32) * scale + offset, 0.0)
    place = tl.where(best > 0, 4, 9)
    for tap in tl.static_range(9):
        if tap != 4:
            at_y, at_x = line * 2 - 1 + tap // 3, column * 2 - 1 + tap % 3
            visible = inside & (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W)
            where = (corner + (tap // 3 - 1) * W + tap % 3 - 1)[:, None] * C + channel[None, :]
            found = tl.load(x + where, mask=visible[:, None], other=0.0)
            v = found.to(tl.float32) * scale + offset
            # of equal values the first tap is taken, as torch does
            better = visible[:, None] & ((v > best) | ((v == best) & (tap < place) & (v > 0)))
            best = tl.where(better, v, best)
            raw = tl.where(better, found, raw)
            place = tl.where(better, tap, place)
    here = row[:, None] * C + channel[None, :]
    tl.store(y + here, best.to(y.dtype.element_ty), mask=inside[:, None])
    tl.store(taken + here, place.to(tl.uint8), mask=inside[:, None])
    tl.store(chosen + here, raw, mask=inside[:, None])


@triton.jit
def pool_backward_apply(
    gradient,
    x,
    taken,
    table,
    means,
    by_x,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    C,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of x: at a position the sum over the windows that chose it, one or two in each direction.

    ``means`` are over windows, a quarter of the positions.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = row < rows
    image, at_y, at_x = row // (H * W), (row // W) % H, row % W
    here = row[:, None] * C + channel[None, :]
    v = tl.load(x + here, mask=inside[:, None], other=0.0).to(tl.float32)
    g = tl.zeros((ROWS, CHANNELS), tl.float32)
    for window in tl.static_range(4):
        line = ((at_y + 1) >> 1) - window // 2
        column = ((at_x + 1) >> 1) - window % 2
        tap_y = at_y + 1 - 2 * line
        tap_x = at_x + 1 - 2 * column
        there = inside & (line >= 0) & (line < H // 2) & (column >= 0) & (column < W // 2) & (tap_y < 3) & (tap_x < 3)
        where = ((image * (H // 2) + line) * (W // 2) + column)[:, None] * C + channel[None, :]
        tap = tl.load(taken + where, mask=there[:, None], other=9).to(tl.int32)
        of_window = tl.load(gradient + where, mask=there[:, None], other=0.0).to(tl.float32)
        g += tl.where(tap == (tap_y * 3 + tap_x)[:, None], of_window, 0.0)
    normalised = (v - tl.load(table + channel)[None, :]) * tl.load(table + C + channel)[None, :]
    mean_g, mean_gx = 0.25 * tl.load(means + channel)[None, :], 0.25 * tl.load(means + C + channel)[None, :]
    value = tl.load(table + 2 * C + channel)[None, :] * (g - mean_g - normalised * mean_gx)
    tl.store(by_x + here, value.to(by_x.dtype.element_ty), mask=inside[:, None])
