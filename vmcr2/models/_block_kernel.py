"""The stem's input in one Triton pass: padded 2×2 blocks of pixels, channels last. ``_convolutions`` uses it."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import torch
import triton
import triton.language as tl

_POSITIONS = 256  # blocks of pixels per program


@triton.jit(do_not_specialize=["total"])
def _blocks(
    x,
    out,
    total,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    CHANNELS: tl.constexpr,
    PADDED: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """A row of channels for each block. Sides are even, so that all of a block is in the image, or nothing."""
    block = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    column = block % (W // 2 + 3) - 2
    line = block // (W // 2 + 3) % (H // 2 + 3) - 2
    image = block // ((W // 2 + 3) * (H // 2 + 3))
    visible = (block < total) & (line >= 0) & (line < H // 2) & (column >= 0) & (column < W // 2)
    first = image * (C * H * W) + 2 * line * W + 2 * column
    channel = tl.arange(0, PADDED)[None, :]
    pixel = (channel // 4) * (H * W) + (channel % 4 // 2) * W + channel % 2
    value = tl.load(x + first[:, None] + pixel, mask=visible[:, None] & (channel < 4 * C), other=0.0)
    inside = (block < total)[:, None] & (channel < CHANNELS)
    tl.store(out + block[:, None] * CHANNELS + channel, value.to(out.dtype.element_ty), mask=inside)


def blocks_of(x, channels, dtype):
    """(n, c, h, w) -> (n, channels, h/2 + 3, w/2 + 3): 4 channels a colour, padded by two blocks before, one after."""
    n, c, height, width = x.shape
    out = torch.empty(
        n, channels, height // 2 + 3, width // 2 + 3, dtype=dtype, device=x.device, memory_format=torch.channels_last
    )
    total = out.numel() // channels
    padded = triton.next_power_of_2(channels)
    _blocks[(triton.cdiv(total, _POSITIONS),)](
        x.contiguous(), out, total, c, height, width, channels, padded, _POSITIONS
    )
    return out
