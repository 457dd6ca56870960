"""``augment_crop`` as one Triton kernel: it decides, crops, mirrors and scales in one pass, with the same bits.

torch needs some sixty small kernels, most of them for the hash: 0.2 ms for 2000 images on an H200.
"""

# mypy: ignore-errors
# Triton's language is typed by its compiler: annotations would be read as part of it

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ._key_kernels import below, key_of, mix
from ._keys import _GOLDEN, seed_word

_BLOCK = 1024


@triton.jit
def _crop(
    images,
    index,
    numbers,
    draw,
    out,
    seed_word,
    vertical,
    horizontal,
    padding,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    SIZE: tl.constexpr,
    FLIP: tl.constexpr,
    GOLDEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample = tl.program_id(0)
    source = tl.load(index + sample)
    golden = tl.full((), GOLDEN, tl.uint64)
    key = key_of(numbers, draw, seed_word, sample, golden)
    top = below(mix(key + golden), vertical.to(tl.uint64)) - padding
    left = below(mix(key + golden * 2), horizontal.to(tl.uint64)) - padding
    mirrored = below(mix(key + golden * 3), tl.full((), 2, tl.uint64)) == 1
    for first in range(0, C * SIZE * SIZE, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < C * SIZE * SIZE
        column = i % SIZE
        if FLIP:
            column = tl.where(mirrored, SIZE - 1 - column, column)
        x = column + left
        y = (i // SIZE) % SIZE + top
        channel = i // (SIZE * SIZE)
        visible = inside & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        pixel = tl.load(images + source * (C * H * W) + (channel * H + y) * W + x, mask=visible, other=0)
        value = tl.div_rn(pixel.to(tl.float32), tl.full((BLOCK,), 255.0, tl.float32))
        tl.store(out + sample.to(tl.int64) * (C * SIZE * SIZE) + i, value, mask=inside)


def crop_kernel(images, index, numbers, draw, *, seed, size, padding, flip):
    """What ``augment_crop`` returns."""
    count, (channels, height, width) = len(index), images.shape[1:]
    out = torch.empty(count, channels, size, size, device=images.device)
    _crop[(count,)](
        images,
        index,
        numbers,
        draw,
        out,
        seed_word(seed),
        height + 2 * padding - size + 1,
        width + 2 * padding - size + 1,
        padding,
        channels,
        height,
        width,
        size,
        flip,
        _GOLDEN,
        _BLOCK,
    )
    return out
