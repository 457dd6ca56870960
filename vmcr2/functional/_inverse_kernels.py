"""Triton kernels that invert symmetric positive definite matrices on a GPU. ``_inverses`` calls them.

Two ways. *Sweeps* (Gauss-Jordan by blocks) take any matrix, and many at once: few programs and long chains, so they
suit work beside a network. *Newton's rounds* are products of whole matrices: fast for one matrix whose eigenvalues are
bounded. Matrices are D×D, D a multiple of 64; products are in TF32 with three terms, as exact as float32.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(base, D, row, column, BLOCK: tl.constexpr):
    """Addresses of a square block."""
    at = tl.arange(0, BLOCK)
    return base + (row + at)[:, None] * D + (column + at)[None, :]


@triton.jit
def _diagonal(base, D, first, BLOCK: tl.constexpr):
    """A diagonal block, symmetric to the last bit: by its lower triangle."""
    at = tl.arange(0, BLOCK)
    low, high = tl.minimum(at[:, None], at[None, :]), tl.maximum(at[:, None], at[None, :])
    return tl.load(base + (first + high) * D + first + low)


@triton.jit
def _lower(tile):
    """Row and column of a tile, counted row by row on and below the diagonal."""
    row = ((tl.sqrt(8.0 * tile + 1.0) - 1.0) * 0.5 + 1e-3).to(tl.int32)
    return row, tile - row * (row + 1) // 2


@triton.jit
def _dot(left, right):
    return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
def _invert(block, SIZE: tl.constexpr):
    """The inverse of a small block in registers, pivot after pivot.

    A sweep of pivot p subtracts crᵀ/pivot from the block, with its column c and row r. Row p becomes r/pivot, column p
    c/pivot, and the pivot −1/pivot: the same product, if p's entries of c and r are −1, and row and column were 0.
    After all sweeps the block is minus its inverse.
    """
    at = tl.arange(0, SIZE)
    row, column = at[:, None], at[None, :]
    for p in range(SIZE):
        across = tl.sum(tl.where(row == p, block, 0.0), 0)
        down = tl.sum(tl.where(column == p, block, 0.0), 1)
        pivot = tl.sum(tl.where(at == p, across, 0.0), 0)
        across = tl.where(at == p, -1.0, across) / pivot
        down = tl.where(at == p, -1.0, down)
        block = tl.where((row == p) | (column == p), 0.0, block) - down[:, None] * across[None, :]
    return -block


@triton.jit
def sweep_diagonal(matrices, inverses, first, D, HALF: tl.constexpr):
    """The inverse of a diagonal block of 2·HALF rows, by its two halves; (n, 2·HALF, 2·HALF).

    What pivots round grows with the condition of their half. So ``across`` is corrected by the half itself, and the
    whole inverse by a step of Newton's method.
    """
    which = tl.program_id(0).to(tl.int64)
    base = matrices + which * D * D
    upper = _invert(_diagonal(base, D, first, HALF), HALF)
    side = tl.load(_tile(base, D, first + HALF, first, HALF))
    across = tl.dot(side, upper, input_precision="ieee")
    error = side - tl.dot(across, _diagonal(base, D, first, HALF), input_precision="ieee")
    across += tl.dot(error, upper, input_precision="ieee")
    lower = _diagonal(base, D, first + HALF, HALF)
    lower = _invert(lower - tl.dot(across, tl.trans(side), input_precision="ieee"), HALF)
    corner = -tl.dot(lower, across, input_precision="ieee")
    upper -= tl.dot(tl.trans(across), corner, input_precision="ieee")
    out = inverses + which * 4 * HALF * HALF
    tl.store(_tile(out, 2 * HALF, 0, 0, HALF), upper)
    tl.store(_tile(out, 2 * HALF, HALF, 0, HALF), corner)
    tl.store(_tile(out, 2 * HALF, 0, HALF, HALF), tl.trans(corner))
    tl.store(_tile(out, 2 * HALF, HALF, HALF, HALF), lower)
    tl.debug_barrier()  # other threads of the program wrote parts of what is read now
    whole = _tile(out, 2 * HALF, 0, 0, 2 * HALF)
    near, at = tl.load(whole), tl.arange(0, 2 * HALF)
    error = tl.where(at[:, None] == at[None, :], 1.0, 0.0) - _dot(_diagonal(base, D, first, 2 * HALF), near)
    near += _dot(near, error)
    tl.debug_barrier()
    tl.store(whole, near)


@triton.jit
def sweep_panel(matrices, inverses, old, new, first, D, BLOCK: tl.constexpr):
    """The block column of a diagonal block: a copy of it, and the copy times the inverse of the diagonal block.

    The product is corrected once by the block itself. Without that its rounding grows with the block's condition, and
    the sweeps lost all their digits on the dictionary of an untrained network.
    """
    which = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * BLOCK
    base = matrices + which * D * D
    if row > first:
        tile = tl.load(_tile(base, D, row, first, BLOCK))
    else:  # above the diagonal nothing is stored
        tile = tl.trans(tl.load(_tile(base, D, first, row, BLOCK)))
    inverse = tl.load(_tile(inverses + which * BLOCK * BLOCK, BLOCK, 0, 0, BLOCK))
    tl.store(_tile(old + which * D * BLOCK, BLOCK, row, 0, BLOCK), tile)
    value = _dot(tile, inverse)
    value += _dot(tile - _dot(value, _diagonal(base, D, first, BLOCK)), inverse)
    tl.store(_tile(new + which * D * BLOCK, BLOCK, row, 0, BLOCK), value)


@triton.jit
def sweep_rest(matrices, inverses, old, new, first, D, BLOCK: tl.constexpr, LAST: tl.constexpr):
    """The tiles on and below the diagonal after the sweep. The last sweep changes the sign, and mirrors."""
    which = tl.program_id(0).to(tl.int64)
    row, column = _lower(tl.program_id(1))
    row, column = row * BLOCK, column * BLOCK
    base = matrices + which * D * D
    here = _tile(base, D, row, column, BLOCK)
    if row == first:
        if column == first:
            value = -tl.load(_tile(inverses + which * BLOCK * BLOCK, BLOCK, 0, 0, BLOCK))
        else:
            value = tl.trans(tl.load(_tile(new + which * D * BLOCK, BLOCK, column, 0, BLOCK)))
    else:
        left = tl.load(_tile(new + which * D * BLOCK, BLOCK, row, 0, BLOCK))
        if column == first:
            value = left
        else:
            right = tl.load(_tile(old + which * D * BLOCK, BLOCK, column, 0, BLOCK))
            value = tl.load(here) - _dot(left, tl.trans(right))
    if LAST:
        value = -value
        tl.store(_tile(base, D, column, row, BLOCK), tl.trans(value))
    tl.store(here, value)


@triton.jit
def add_moments(
    rows, order, starts, counts, sums, d, D, sign, FRESH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr
):
    """Σ zzᵀ over each class's rows, times ``sign``, added to the tiles on and below the diagonal of (k, D, D).

    ``order`` has the rows class after class. With FRESH the old sums are not read.
    """
    which = tl.program_id(0)
    row, column = _lower(tl.program_id(1))
    here = _tile(sums + which.to(tl.int64) * D * D, D, row * BLOCK, column * BLOCK, BLOCK)
    left, right = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(starts + which)
    last = first + tl.load(counts + which)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for begin in range(first, last, STEP):
        place = begin + tl.arange(0, STEP)
        known = (place < last)[:, None]
        at = tl.load(order + place, mask=place < last, other=0)[:, None] * d
        z_left = tl.load(rows + at + left[None, :], mask=known & (left < d)[None, :], other=0.0)
        z_right = tl.load(rows + at + right[None, :], mask=known & (right < d)[None, :], other=0.0)
        total += _dot(tl.trans(z_left), z_right)
    total = total * sign
    if not FRESH:
        total += tl.load(here)
    tl.store(here, total)


@triton.jit
def identity_plus(sums, scales, matrices, D, BLOCK: tl.constexpr):
    """I + scale·sums, the tiles on and below the diagonal."""
    which = tl.program_id(0)
    row, column = _lower(tl.program_id(1))
    offset = which.to(tl.int64) * D * D
    value = tl.load(_tile(sums + offset, D, row * BLOCK, column * BLOCK, BLOCK)) * tl.load(scales + which)
    at = tl.arange(0, BLOCK)
    same = (row * BLOCK + at)[:, None] == (column * BLOCK + at)[None, :]
    value = tl.where(same, value + 1.0, value)
    tl.store(_tile(matrices + offset, D, row * BLOCK, column * BLOCK, BLOCK), value)


@triton.jit
def split_rows(rows, out, d, D, BLOCK: tl.constexpr):
    """Every row as two of D entries next to each other: the part that TF32 holds exactly, and the rest."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(rows + row * d + column, mask=column < d, other=0.0)
    high = (value.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    tl.store(out + row * 2 * D + column, high, mask=column < D)
    tl.store(out + row * 2 * D + D + column, value - high, mask=column < D)


@triton.jit
def newton_start(products, matrix, pair, alpha, first, D, BLOCK: tl.constexpr):
    """S = I + α(H + L + Lᵀ) from (H, L), the products of split rows, and the pair (I − first·S, first·I)."""
    tiles = D // BLOCK
    row, column = tl.program_id(0) // tiles * BLOCK, tl.program_id(0) % tiles * BLOCK
    at = tl.arange(0, BLOCK)
    value = tl.load(_tile(products, 2 * D, row, column, BLOCK))
    value += tl.load(_tile(products + D, 2 * D, row, column, BLOCK))
    value += tl.trans(tl.load(_tile(products + D, 2 * D, column, row, BLOCK)))
    same = (row + at)[:, None] == (column + at)[None, :]
    value = tl.where(same, alpha * value + 1.0, alpha * value)
    tl.store(_tile(matrix, D, row, column, BLOCK), value)
    tl.store(_tile(pair, D, row, column, BLOCK), tl.where(same, 1.0 - first * value, -first * value))
    tl.store(_tile(pair + D * D, D, row, column, BLOCK), tl.where(same, first, 0.0) + tl.zeros_like(value))


@triton.jit
def _row_times(left, right, row, column, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    """A tile of LR, R symmetric: its rows are read in place of its columns, as tensor cores want them."""
    r, c, k = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS), tl.arange(0, DEEP)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, D, DEEP):
        a = tl.load(left + r[:, None] * D + (begin + k)[None, :])
        b = tl.load(right + c[:, None] * D + (begin + k)[None, :])
        total = tl.dot(a, tl.trans(b), total, input_precision="tf32x3")
    return total


@triton.jit
def newton_round(pair, out, scale, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    """(E, X) -> ((1 − s)I + sE², s(X + XE)): with SX = I − E, the next X is nearer to S⁻¹, and its E is known."""
    tiles = D // COLUMNS
    row, column = tl.program_id(0) // tiles * ROWS, tl.program_id(0) % tiles * COLUMNS
    total = _row_times(pair, pair, row, column, D, ROWS, COLUMNS, DEEP) * scale
    r, c = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    where = r[:, None] * D + c[None, :]
    if row < D:
        total = tl.where(r[:, None] == c[None, :], total + (1.0 - scale), total)
    else:
        total += scale * tl.load(pair + where)
    tl.store(out + where, total)


@triton.jit
def plus_product(
    start, left, right, out, sign, D, START: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr
):
    """``start`` + sign·LR, R symmetric; I in the place of ``start`` without START."""
    tiles = D // COLUMNS
    row, column = tl.program_id(0) // tiles * ROWS, tl.program_id(0) % tiles * COLUMNS
    total = _row_times(left, right, row, column, D, ROWS, COLUMNS, DEEP) * sign
    r, c = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    where = r[:, None] * D + c[None, :]
    if START:
        total += tl.load(start + where)
    else:
        total = tl.where(r[:, None] == c[None, :], total + 1.0, total)
    tl.store(out + where, total)


@triton.jit
def rows_times(
    left,
    right,
    out,
    n,
    d,
    D,
    scale,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEEP: tl.constexpr,
):
    """scale·LR of a batch: L (b, n, d), R (b, D, D) symmetric, of which the first d rows and columns count."""
    which = tl.program_id(1).to(tl.int64)
    tiles = D // COLUMNS
    r = tl.program_id(0) // tiles * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    left += which * n * d
    right += which * D * D
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, D, DEEP):
        k = begin + tl.arange(0, DEEP)
        a = tl.load(left + r[:, None] * d + k[None, :], mask=(r < n)[:, None] & (k < d)[None, :], other=0.0)
        b = tl.load(right + c[:, None] * D + k[None, :])
        total = tl.dot(a, tl.trans(b), total, input_precision="tf32x3")
    where = out + which * n * d + r[:, None] * d + c[None, :]
    tl.store(where, total * scale, mask=(r < n)[:, None] & (c < d)[None, :])
