"""Triton kernels for 1×1 convolutions with stride 2, the shortcuts of ResNets; ``_fused_convolutions`` starts them.

Each is a matrix product over rows of channels. Only a quarter of the input's pixels takes part: the kernels read and
write them where they stand, so that nothing is copied or filled with zeros. The gradient of the input is added to the
gradient that the block's 3×3 convolution has left there.

x is (n, 2h, 2w, IN), y is (n, h, w, OUT). Rows are pixels of y. IN and OUT are multiples of 64 and are not compile-time
constants, so that one compilation serves all layers. All tensors have fewer than 2³¹ entries.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pixel(row, width):
    """The pixel of x that a pixel of y reads: 4·width·line + 2·column, with one division."""
    return 2 * (row + width * (row // width))


@triton.jit(do_not_specialize=["rows", "width"])
def convolve(x, weight, y, rows, width, IN, OUT, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """y = x·weightᵀ on every second line and column. Programs next to each other read the same rows."""
    tiles = OUT // COLUMNS
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None]
    depth = tl.arange(0, DEPTH)
    a = x + _pixel(row, width)[:, None] * IN + depth[None, :]
    b = weight + column[None, :] * IN + depth[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, IN, DEPTH):
        total = tl.dot(tl.load(a + first, mask=inside, other=0.0), tl.load(b + first), total)
    tl.store(y + row[:, None] * OUT + column[None, :], total.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "width"])
def add_by_input(
    gradient,
    weight,
    by_x,
    rows,
    width,
    IN,
    OUT,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """by_x += gradient·weight on every second line and column."""
    tiles = IN // COLUMNS
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None]
    depth = tl.arange(0, DEPTH)
    a = gradient + row[:, None] * OUT + depth[None, :]
    b = weight + depth[:, None] * IN + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, OUT, DEPTH):
        total = tl.dot(tl.load(a + first, mask=inside, other=0.0), tl.load(b + first * IN), total)
    where = by_x + _pixel(row, width)[:, None] * IN + column[None, :]
    total += tl.load(where, mask=inside, other=0.0).to(tl.float32)
    tl.store(where, total.to(by_x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "per_part", "width"])
def by_weight(
    gradient,
    x,
    partial,
    rows,
    per_part,
    width,
    IN,
    OUT,
    ROWS: tl.constexpr,
    HEIGHT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of a part of gradientᵀ·x, (parts, OUT, IN)."""
    tiles = IN // COLUMNS
    out = (tl.program_id(0) // tiles) * HEIGHT + tl.arange(0, HEIGHT)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    last = tl.minimum((part + 1) * per_part, rows)
    total = tl.zeros((HEIGHT, COLUMNS), tl.float32)
    for first in range(part * per_part, last, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None]
        g = tl.load(gradient + row[:, None] * OUT + out[None, :], mask=inside, other=0.0)
        v = tl.load(x + _pixel(row, width)[:, None] * IN + column[None, :], mask=inside, other=0.0)
        total = tl.dot(tl.trans(g), v, total)
    tl.store(partial + part * OUT * IN + out[:, None] * IN + column[None, :], total)
