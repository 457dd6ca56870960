"""Triton kernels for PreAct's stem, 3×3 with padding 1, from three channels to 64; ``_fused_convolutions`` starts them.

cuDNN pads three channels to eight and takes 560 µs for 2000 images of 32×32 on an H200, and 709 for the gradient of the
weight. Memory needs 60 each: the output is 262 MB. Here 27 pixels and five zeros are a row of a matrix. Its product
with the weight is the output, and its product with the output's gradient is the weight's gradient.

Images are (n, 3, H, W) in torch's default order, the output is (n, H, W, 64): rows of 64 channels. Sums over positions
are made in parts, which are then added up, always in one order.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl

from ._tile_kernels import eight

_CHANNELS = tl.constexpr(64)
_TAPS = tl.constexpr(27)
_PADDED = tl.constexpr(32)  # taps with zeros: tensor cores take multiples of 16


@triton.jit
def _colour(x, above, middle, below, left, right, W: tl.constexpr):
    """Nine pixels of a colour around each position. Neighbours in a warp read neighbours."""
    p0 = tl.load(x - W - 1, mask=above & left, other=0.0)
    p1 = tl.load(x - W, mask=above, other=0.0)
    p2 = tl.load(x - W + 1, mask=above & right, other=0.0)
    p3 = tl.load(x - 1, mask=middle & left, other=0.0)
    p4 = tl.load(x, mask=middle, other=0.0)
    p5 = tl.load(x + 1, mask=middle & right, other=0.0)
    p6 = tl.load(x + W - 1, mask=below & left, other=0.0)
    p7 = tl.load(x + W, mask=below, other=0.0)
    p8 = tl.load(x + W + 1, mask=below & right, other=0.0)
    return p0, p1, p2, p3, p4, p5, p6, p7, p8


@triton.jit
def _pixels(x, row, last, H: tl.constexpr, W: tl.constexpr):
    """What the stem sees at each position, (positions, 32): entry 9·colour + 3·line + column, then zeros."""
    place = row % (H * W)
    line = place // W
    column = place % W
    middle = row < last
    above = middle & (line > 0)
    below = middle & (line < H - 1)
    left = column > 0
    right = column < W - 1
    at = x + (row // (H * W)) * (3 * H * W) + place
    a0, a1, a2, a3, a4, a5, a6, a7, a8 = _colour(at, above, middle, below, left, right, W)
    b0, b1, b2, b3, b4, b5, b6, b7, b8 = _colour(at + H * W, above, middle, below, left, right, W)
    c0, c1, c2, c3, c4, c5, c6, c7, c8 = _colour(at + 2 * H * W, above, middle, below, left, right, W)
    o = tl.zeros(row.shape, x.dtype.element_ty)
    first = eight(a0, a4, a8, b3, b7, c2, c6, o)  # entries 0, 4, …
    second = eight(a1, a5, b0, b4, b8, c3, c7, o)  # 1, 5, …
    third = eight(a2, a6, b1, b5, c0, c4, c8, o)
    fourth = eight(a3, a7, b2, b6, c1, c5, o, o)
    return tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))


@triton.jit
def _weight_places(by_colour, by_line, by_column):
    """Where the taps stand in the weight's memory, (32, 64), and which of them it has."""
    tap = tl.arange(0, _PADDED)[:, None]
    channel = tl.arange(0, _CHANNELS)[None, :]
    where = (tap // 9) * by_colour + (tap % 9 // 3) * by_line + (tap % 3) * by_column
    return channel * _TAPS + where, (tap < _TAPS) & (channel >= 0)


@triton.jit(do_not_specialize=["rows"])
def convolve(
    x,
    weight,
    y,
    rows,
    by_colour,
    by_line,
    by_column,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
):
    """TILES blocks of positions, with one read of the weight."""
    where, has = _weight_places(by_colour, by_line, by_column)
    taps = tl.load(weight + where, mask=has, other=0.0)
    channel = tl.arange(0, _CHANNELS)[None, :]
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        value = tl.dot(_pixels(x, row, rows, H, W), taps)
        tl.store(y + row[:, None] * _CHANNELS + channel, value.to(y.dtype.element_ty), mask=(row < rows)[:, None])


@triton.jit(do_not_specialize=["rows", "per_part"])
def convolve_backward(
    gradient,
    x,
    partial,
    rows,
    per_part,
    by_colour,
    by_line,
    by_column,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A part of the gradient of the weight, in the order of the weight's memory, (1728,)."""
    part = tl.program_id(0)
    channel = tl.arange(0, _CHANNELS)[None, :]
    total = tl.zeros((_PADDED, _CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in range(part * per_part, last, BLOCK):
        row = first + tl.arange(0, BLOCK)
        g = tl.load(gradient + row[:, None] * _CHANNELS + channel, mask=(row < last)[:, None], other=0.0)
        total = tl.dot(tl.trans(_pixels(x, row, last, H, W)), g, total)
    where, has = _weight_places(by_colour, by_line, by_column)
    tl.store(partial + part * (_TAPS * _CHANNELS) + where, total, mask=has)
