"""Triton kernels for the two convolutional layers of MNIST's network in training; ``_fused_mnist`` launches them.

The first convolution has one input channel, which leaves cuDNN's kernels idle, and what follows the second one (bias,
ReLU, max-pool, dropout) is four passes over 100 MB in torch. Here each is one pass forward and one backward.

Images are (n, 32, 32). The first layer's output is (n, 30, 30, 32), the second's (n, 28, 28, 64), channels last. The
pooled output is (n, 64, 14, 14), channels first, so that flattening it is free. All have fewer than 2³¹ entries. Sums
over samples are made in parts, which are then added up, always in one order.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl

from ._tile_kernels import four

_SIDE = tl.constexpr(32)  # of an image
_CONVOLVED = tl.constexpr(30)  # side after the first convolution
_CHANNELS = tl.constexpr(32)  # of the first convolution
_TAPS = tl.constexpr(16)  # nine pixels, a one for the bias, zeros: tensor cores take multiples of 16
_WIDTH = tl.constexpr(320)  # weight (32, 9), then bias (32): the first convolution's parameters in a row
_POOLED = tl.constexpr(14)  # side after pooling
_AREA = tl.constexpr(196)
_FEATURES = tl.constexpr(64)  # channels of the second convolution
_NONE = tl.constexpr(4)  # no tap was taken: ReLU or dropout set the output to 0


@triton.jit
def _pixels(x, row, rows, dtype: tl.constexpr):
    """What the first convolution sees at each position, (positions, 16). Neighbours in a warp read neighbours."""
    image = row // (_CONVOLVED * _CONVOLVED)
    corner = x + (row // _CONVOLVED + image * (_SIDE - _CONVOLVED)) * _SIDE + row % _CONVOLVED
    inside = row < rows
    p0 = tl.load(corner, mask=inside, other=0.0).to(dtype)
    p1 = tl.load(corner + 1, mask=inside, other=0.0).to(dtype)
    p2 = tl.load(corner + 2, mask=inside, other=0.0).to(dtype)
    p3 = tl.load(corner + _SIDE, mask=inside, other=0.0).to(dtype)
    p4 = tl.load(corner + _SIDE + 1, mask=inside, other=0.0).to(dtype)
    p5 = tl.load(corner + _SIDE + 2, mask=inside, other=0.0).to(dtype)
    p6 = tl.load(corner + 2 * _SIDE, mask=inside, other=0.0).to(dtype)
    p7 = tl.load(corner + 2 * _SIDE + 1, mask=inside, other=0.0).to(dtype)
    p8 = tl.load(corner + 2 * _SIDE + 2, mask=inside, other=0.0).to(dtype)
    one = tl.full(row.shape, 1.0, tl.float32).to(dtype)
    zero = tl.full(row.shape, 0.0, tl.float32).to(dtype)
    # joined so that tap t is entry t
    even = tl.interleave(four(p0, p4, p8, zero), four(p2, p6, zero, zero))
    odd = tl.interleave(four(p1, p5, one, zero), four(p3, p7, zero, zero))
    return tl.interleave(even, odd)


@triton.jit
def convolve(x, weight, bias, y, signs, rows, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """max(conv(x) + bias, 0). ``signs`` has one bit a channel, 1 where the output is above 0."""
    dtype: tl.constexpr = y.dtype.element_ty
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pixels = _pixels(x, row, rows, dtype)
    tap = tl.arange(0, _TAPS)[:, None]
    channel = tl.arange(0, _CHANNELS)[None, :]
    taps = tl.load(weight + channel * 9 + tap, mask=tap < 9, other=0.0)
    taps = tl.where(tap == 9, tl.load(bias + channel), taps).to(dtype)
    value = tl.dot(pixels, taps, input_precision=PRECISION)
    shut = value <= 0  # false for nan, which stays, as in torch
    inside = row < rows
    tl.store(
        y + row[:, None] * _CHANNELS + channel,
        tl.where(shut, 0.0, value).to(dtype),
        mask=inside[:, None],
    )
    bit = tl.full((1, _CHANNELS), 1, tl.int32) << channel
    tl.store(signs + row, tl.sum(tl.where(shut, 0, bit), 1), mask=inside)


@triton.jit(do_not_specialize=["rows", "per_part"])
def convolve_backward(gradient, x, signs, partial, rows, per_part, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """A part of the gradients of weight and bias, (320,)."""
    dtype: tl.constexpr = gradient.dtype.element_ty
    part = tl.program_id(0)
    channel = tl.arange(0, _CHANNELS)[None, :]
    total = tl.zeros((_TAPS, _CHANNELS), tl.float32)
    last = tl.minimum((part + 1) * per_part, rows)
    for first in range(part * per_part, last, BLOCK):
        row = first + tl.arange(0, BLOCK)
        inside = row < last
        sign = tl.load(signs + row, mask=inside, other=0)
        g = tl.load(gradient + row[:, None] * _CHANNELS + channel, mask=inside[:, None], other=0.0)
        g = tl.where(((sign[:, None] >> channel) & 1) == 1, g, 0.0).to(dtype)
        pixels = tl.trans(_pixels(x, row, rows, dtype))
        total = tl.dot(pixels, g, total, input_precision=PRECISION)
    tap = tl.arange(0, _TAPS)[:, None]
    where = tl.where(tap == 9, 9 * _CHANNELS + channel, channel * 9 + tap)
    tl.store(partial + part * _WIDTH + where, total, mask=tap < 10)


@triton.jit
def _place(row):
    """Of pooled positions: image, place in the pooled image, and where the window starts in the second layer's output.

    196 is a multiple of 4: four positions that start at a multiple of 4 stay in one image, and next to each other.
    """
    image = tl.max_constancy(row // _AREA, 4)
    place = tl.max_contiguous(tl.multiple_of(row % _AREA, 4), 4)
    line = row // _POOLED  # of all images: each has 14
    start = (line * 4 * _POOLED + 2 * (row % _POOLED)) * _FEATURES
    return image, place, start


@triton.jit
def _dropped(seed, row, threshold):
    """Which entries (positions, 64) dropout sets to 0: 16 random bits each, eight entries from one draw of Philox."""
    draw = row[:, None] * (_FEATURES // 8) + tl.arange(0, _FEATURES // 8)[None, :]
    a, b, c, d = tl.randint4x(tl.load(seed), draw)
    words = tl.interleave(tl.interleave(a, b), tl.interleave(c, d))
    bits = tl.interleave(words & 0xFFFF, (words >> 16) & 0xFFFF)
    return bits.to(tl.int32) < threshold


@triton.jit
def _packed(tap):
    """(positions, 64) taps as (positions, 8) words: four bits each, eight channels to a word."""
    return tl.sum(tl.reshape(tap, (tap.shape[0], _FEATURES // 8, 8)) << (4 * tl.arange(0, 8))[None, None, :], 2)


@triton.jit
def _unpacked(word):
    """What was packed."""
    tap = (word[:, :, None] >> (4 * tl.arange(0, 8))[None, None, :]) & 7
    return tl.reshape(tap, (word.shape[0], _FEATURES))


@triton.jit
def pool(x, bias, y, taken, seed, n, before, threshold, scale, DROPOUT: tl.constexpr, BLOCK: tl.constexpr):
    """Bias, ReLU, max-pool 2×2, dropout. ``taken`` (n, 14, 14, 8) has the chosen taps, 4 for none.

    ``before``: positions of the batch that other processes have before these; dropout counts them.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, _FEATURES)
    image, place, start = _place(row)
    inside = (image < n)[:, None]
    first = x + start[:, None] + channel[None, :]
    best = tl.load(first, mask=inside, other=0.0).to(tl.float32)
    tap_of = tl.zeros((BLOCK, _FEATURES), tl.int32)
    for tap in tl.static_range(1, 4):
        v = tl.load(first + ((tap // 2) * 2 * _POOLED + tap % 2) * _FEATURES, mask=inside, other=0.0).to(tl.float32)
        better = (v > best) | (v != v)  # noqa: PLR0124 - the first of equals, and nan, as in torch
        best = tl.where(better, v, best)
        tap_of = tl.where(better, tap, tap_of)
    value = best + tl.load(bias + channel).to(tl.float32)[None, :]
    shut = value <= 0
    if DROPOUT:
        shut = shut | _dropped(seed, row + before, threshold)
    eighth = tl.arange(0, _FEATURES // 8)[None, :]
    tl.store(taken + row[:, None] * (_FEATURES // 8) + eighth, _packed(tl.where(shut, _NONE, tap_of)), mask=inside)
    value = tl.where(shut, 0.0, value * scale).to(y.dtype.element_ty)
    where = image[None, :] * (_FEATURES * _AREA) + channel[:, None] * _AREA + place[None, :]
    tl.store(y + where, tl.trans(value), mask=(image < n)[None, :])


@triton.jit
def pool_backward(gradient, taken, by_x, partial, n, scale, BLOCK: tl.constexpr):
    """The gradient of the second convolution's output, and a part of its bias's, (64,)."""
    part = tl.program_id(0)
    row = part * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, _FEATURES)
    image, place, start = _place(row)
    inside = (image < n)[:, None]
    # loaded before the gradient: the compiler computes in the order of memory that it meets first
    eighth = tl.arange(0, _FEATURES // 8)[None, :]
    packed = tl.load(taken + row[:, None] * (_FEATURES // 8) + eighth, mask=inside, other=0x44444444)
    chosen = _unpacked(packed)
    where = image[None, :] * (_FEATURES * _AREA) + channel[:, None] * _AREA + place[None, :]
    g = tl.load(gradient + where, mask=(image < n)[None, :], other=0.0).to(tl.float32) * scale
    g = tl.trans(g.to(by_x.dtype.element_ty))
    first = by_x + start[:, None] + channel[None, :]
    for tap in tl.static_range(4):
        own = tl.where(chosen == tap, g, 0.0)
        tl.store(first + ((tap // 2) * 2 * _POOLED + tap % 2) * _FEATURES, own, mask=inside)
    tl.store(partial + part * _FEATURES + channel, tl.sum(tl.where(chosen == _NONE, 0.0, g.to(tl.float32)), 0))
