"""The stem's input in one Triton pass: padded 2×2 blocks of pixels, channels last. ``_convolutions`` uses it."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit
def _blocks(
    x, out, total, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    channel = i % CHANNELS
    column = (i // CHANNELS) % (W // 2 + 3)
    line = (i // (CHANNELS * (W // 2 + 3))) % (H // 2 + 3)
    image = i // (CHANNELS * (W // 2 + 3) * (H // 2 + 3))
    at_y = 2 * line + (channel % 4) // 2 - 4
    at_x = 2 * column + channel % 2 - 4
    visible = inside & (channel < 4 * C) & (at_y >= 0) & (at_y < H) & (at_x >= 0) & (at_x < W)
    where = ((image * C + channel // 4) * H + at_y) * W + at_x
    value = tl.load(x + where, mask=visible, other=0.0)
    tl.store(out + i, value.to(out.dtype.element_ty), mask=inside)


def blocks_of(x, channels, dtype):
    """(n, c, h, w) -> (n, channels, h/2 + 3, w/2 + 3): 4 channels a colour, padded by two blocks before, one after."""
    n, c, height, width = x.shape
    out = torch.empty(
        n, channels, height // 2 + 3, width // 2 + 3, dtype=dtype, device=x.device, memory_format=torch.channels_last
    )
    grid = (triton.cdiv(out.numel(), _BLOCK),)
    _blocks[grid](x.contiguous(), out, out.numel(), c, height, width, channels, _BLOCK)
    return out
