"""``augment_resized_crop`` as one Triton kernel: it decides, cuts, resizes, mirrors and scales in one pass.

torch needs some hundred and fifty kernels: half of them for the hash and the boxes, half for the filter's taps.
"""

# mypy: ignore-errors
# Triton's language is typed by its compiler: annotations would be read as part of it

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ._key_kernels import below, key_of, mix
from ._keys import _GOLDEN, seed_word
from ._resample import taps_of

_BLOCK = 1024
_ATTEMPTS = 10


@triton.jit
def _unit(word):
    """Uniform in [0, 1), float64."""
    return (word >> 11).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _rounded(x):
    return tl.floor(x + 0.5).to(tl.int32)


@triton.jit
def _tap(start, extent, support, centre, tap):
    """Position and weight, before it is divided by the sum of the weights, of one tap for every pixel of a row."""
    position = tl.floor(centre - support + 0.5) + tap
    weight = tl.maximum(1.0 - tl.abs(position + 0.5 - centre) / support, 0.0)
    return position.to(tl.int32), tl.where((position >= start) & (position < start + extent), weight, 0.0)


@triton.jit
def _resized_crop(
    images,
    index,
    numbers,
    draw,
    out,
    seed_word,
    last_height,
    last_width,
    LOW_AREA: tl.constexpr,
    MORE_AREA: tl.constexpr,
    LOW_ASPECT: tl.constexpr,
    MORE_ASPECT: tl.constexpr,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    SIZE: tl.constexpr,
    ROW_TAPS: tl.constexpr,
    COLUMN_TAPS: tl.constexpr,
    FLIP: tl.constexpr,
    GOLDEN: tl.constexpr,
    ATTEMPTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample = tl.program_id(0)
    source = tl.load(index + sample)
    golden = tl.full((), GOLDEN, tl.uint64)
    key = key_of(numbers, draw, seed_word, sample, golden)

    # the first of ten boxes that fits
    attempt = tl.arange(0, 16)
    word = attempt.to(tl.uint64)
    area = (H * W) * (LOW_AREA + MORE_AREA * _unit(mix(key + golden * (word + 4))))
    aspect = tl.exp(LOW_ASPECT + MORE_ASPECT * _unit(mix(key + golden * (word + 4 + ATTEMPTS))))
    widths = _rounded(tl.sqrt(area * aspect))
    heights = _rounded(tl.sqrt(area / aspect))
    fits = (attempt < ATTEMPTS) & (widths > 0) & (widths <= W) & (heights > 0) & (heights <= H)
    first = tl.min(tl.where(fits, attempt, ATTEMPTS), axis=0)
    failed = first == ATTEMPTS
    height = tl.where(failed, last_height, tl.sum(tl.where(attempt == first, heights, 0), axis=0))
    width = tl.where(failed, last_width, tl.sum(tl.where(attempt == first, widths, 0), axis=0))
    top = below(mix(key + golden), (H - height + 1).to(tl.uint64))
    left = below(mix(key + golden * 2), (W - width + 1).to(tl.uint64))
    top = tl.where(failed, (H - last_height) // 2, top).to(tl.float32)
    left = tl.where(failed, (W - last_width) // 2, left).to(tl.float32)
    mirrored = below(mix(key + golden * 3), tl.full((), 2, tl.uint64)) == 1
    height = height.to(tl.float32)
    width = width.to(tl.float32)

    row_scale = height / SIZE
    column_scale = width / SIZE
    row_support = tl.maximum(row_scale, 1.0)
    column_support = tl.maximum(column_scale, 1.0)
    for begin in range(0, C * SIZE * SIZE, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        inside = i < C * SIZE * SIZE
        x = i % SIZE
        if FLIP:
            x = tl.where(mirrored, SIZE - 1 - x, x)
        y = (i // SIZE) % SIZE
        plane = images + source * (C * H * W) + (i // (SIZE * SIZE)) * (H * W)
        row_centre = top + (y.to(tl.float32) + 0.5) * row_scale
        column_centre = left + (x.to(tl.float32) + 0.5) * column_scale
        row_sum = tl.zeros((BLOCK,), tl.float32)
        for tap in tl.static_range(ROW_TAPS):
            row_sum += _tap(top, height, row_support, row_centre, tap)[1]
        column_sum = tl.zeros((BLOCK,), tl.float32)
        value = tl.zeros((BLOCK,), tl.float32)
        for across in tl.static_range(COLUMN_TAPS):
            column, column_weight = _tap(left, width, column_support, column_centre, across)
            column_sum += column_weight
            squeezed = tl.zeros((BLOCK,), tl.float32)
            for down in tl.static_range(ROW_TAPS):
                row, row_weight = _tap(top, height, row_support, row_centre, down)
                visible = inside & (row_weight > 0) & (column_weight > 0)
                pixel = tl.load(plane + row * W + column, mask=visible, other=0)
                squeezed += pixel.to(tl.float32) * row_weight
            value += squeezed * column_weight
        tl.store(out + sample.to(tl.int64) * (C * SIZE * SIZE) + i, value / (row_sum * column_sum * 255.0), mask=inside)


def resized_crop_kernel(images, index, numbers, draw, *, seed, size, flip, scale, ratio, fallback):
    """What ``augment_resized_crop`` returns, to rounding."""
    count, (channels, height, width) = len(index), images.shape[1:]
    out = torch.empty(count, channels, size, size, device=images.device)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    _resized_crop[(count,)](
        images,
        index,
        numbers,
        draw,
        out,
        seed_word(seed),
        *fallback,
        # constants: a float that is no constant would be rounded to float32
        scale[0],
        scale[1] - scale[0],
        low,
        high - low,
        channels,
        height,
        width,
        size,
        taps_of(height, size),
        taps_of(width, size),
        flip,
        _GOLDEN,
        _ATTEMPTS,
        _BLOCK,
    )
    return out
