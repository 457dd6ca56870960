"""Pieces that the Triton kernels of convolutions share: columns of a tile, and sums that were made in parts."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import torch
import triton
import triton.language as tl

_WIDE = 8192
_FEW_COLUMNS = (256, 16)  # parts and columns at a time, of narrow sums of many parts
_MANY_COLUMNS = (64, 64)  # of wide ones, which have fewer parts


@triton.jit
def four(a, b, c, d):
    """Columns (positions, 4) of four vectors. A join puts its second part at the odd places."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (a.shape[0], 4))


@triton.jit
def eight(a, b, c, d, e, f, g, h):
    """Columns (positions, 8) of eight vectors."""
    return tl.interleave(four(a, c, e, g), four(b, d, f, h))


@triton.jit(do_not_specialize=["parts"])
def add_parts(partial, out, parts, width, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of all rows of ``partial`` (parts, width); ``width`` is a multiple of COLUMNS."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        where = part[:, None] * width + column[None, :]
        total += tl.load(partial + where, mask=(part < parts)[:, None], other=0.0)
    tl.store(out + column, tl.sum(total, 0).to(out.dtype.element_ty))


def added(partial, dtype):
    """The sum of the parts (parts, width), in a fixed order: (width,)."""
    parts, width = partial.shape
    out = torch.empty(width, dtype=dtype, device=partial.device)
    at_once, columns = _MANY_COLUMNS if width >= _WIDE else _FEW_COLUMNS
    add_parts[(width // columns,)](partial, out, parts, width, at_once, columns)
    return out
