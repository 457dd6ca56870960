"""Inverses of I + αZᵀZ on a GPU, without the host: many at once by sweeps, one by Newton's rounds (Triton kernels)."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

from ._linalg import Guard, first_distance, products_in_tf32

BLOCK = 64
"""Matrices are padded to a multiple of it."""
_HALF = 32
_STEP = 16
_NEWTON_TILE = {"ROWS": 64, "COLUMNS": 32, "DEEP": 64, "num_stages": 4}
_PRODUCT_TILE = {"ROWS": 64, "COLUMNS": 64, "DEEP": 64}
_CONVERGED = 1e-3
"""Of |I − SX|: one true step of Newton's method squares it."""


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def by_kernels(z: Tensor) -> bool:
    """Whether the kernels can be used for matrices made of z."""
    return z.is_cuda and z.dtype == torch.float32 and not torch.compiler.is_compiling() and _has_triton()


def padded(size: int) -> int:
    """Rows of the matrices that the kernels take for ``size``."""
    return -(-size // BLOCK) * BLOCK


def invert_by_sweeps(matrices: Tensor) -> Tensor:
    """S⁻¹ of (n, D, D), in place. Only the tiles on and below the diagonal are read; the result is whole.

    For a matrix that is not positive definite the diagonal shows it: :func:`report_pivots`.
    """
    from . import _inverse_kernels as kernels

    n, D, _ = matrices.shape
    blocks = D // BLOCK
    inverses = matrices.new_empty(n, BLOCK, BLOCK)
    old, new = matrices.new_empty(n, D, BLOCK), matrices.new_empty(n, D, BLOCK)
    for block in range(blocks):
        parts = (matrices, inverses, old, new, block * BLOCK, D, BLOCK)
        kernels.sweep_diagonal[(n,)](matrices, inverses, block * BLOCK, D, _HALF, num_warps=4)
        kernels.sweep_panel[(n, blocks)](*parts)
        kernels.sweep_rest[(n, blocks * (blocks + 1) // 2)](*parts, block == blocks - 1)
    return matrices


def inverses_of_identity_plus(left: Tensor, right: Tensor, guard: Guard) -> Tensor:
    """(I + LRᵀ)⁻¹ of (b, n, d) pairs whose LRᵀ is symmetric and not negative: (b, n, n)."""
    count, n, _ = left.shape
    matrices = torch.eye(padded(n), device=left.device).repeat(count, 1, 1)
    matrices[:, :n, :n].baddbmm_(left, right.mT)
    inverses = invert_by_sweeps(matrices)[:, :n, :n]
    report_pivots(inverses, guard)
    return inverses


def report_pivots(inverses: Tensor, guard: Guard) -> None:
    """An inverse whose diagonal is not positive is that of a matrix which rounding made indefinite."""
    bad = ~(inverses.diagonal(dim1=-2, dim2=-1) > 0)
    guard.report(bad, lambda: "I + α·ZᵀZ is not positive definite in floating point: use a larger eps_sq")


class ClassMoments:
    """Σ zzᵀ of each class's rows, (k, D, D), of which only the tiles on and below the diagonal are kept."""

    def __init__(self, num_classes: int, dim: int, device: torch.device) -> None:
        self.dim = dim
        self.sums = torch.zeros(num_classes, padded(dim), padded(dim), device=device)

    def recompute(self, rows: Tensor, order: Tensor, starts: Tensor, counts: Tensor) -> None:
        """From all rows; ``order`` has them class after class, ``starts`` and ``counts`` (k,) say where."""
        self._add(rows, order, starts, counts, 1.0, fresh=True)

    def add(self, rows: Tensor, order: Tensor, starts: Tensor, counts: Tensor, sign: float) -> None:
        """Rows that come (1) or go (−1)."""
        self._add(rows, order, starts, counts, sign, fresh=False)

    def _add(self, rows: Tensor, order: Tensor, starts: Tensor, counts: Tensor, sign: float, *, fresh: bool) -> None:
        from . import _inverse_kernels as kernels

        D = self.sums.shape[1]
        kernels.add_moments[self._grid()](
            *(rows, order, starts, counts, self.sums, self.dim, D, sign, fresh, BLOCK, 4 * _STEP if fresh else _STEP)
        )

    def inverses_of_identity_plus(self, scales: Tensor, out: Tensor) -> Tensor:
        """(I + scale_j Σ zzᵀ)⁻¹ of each class, (k, D, D), in ``out``."""
        from . import _inverse_kernels as kernels

        kernels.identity_plus[self._grid()](self.sums, scales, out, self.sums.shape[1], BLOCK)
        return invert_by_sweeps(out)

    def _grid(self) -> tuple[int, int]:
        blocks = self.sums.shape[1] // BLOCK
        return len(self.sums), blocks * (blocks + 1) // 2


def rows_times(rows: Tensor, matrices: Tensor, scale: float = 1.0) -> Tensor:
    """scale·ZX of a batch of rows (b, n, d) and of symmetric, padded matrices (b, D, D): (b, n, d), to 2⁻²²."""
    from . import _inverse_kernels as kernels

    count, n, d = rows.shape
    D = matrices.shape[-1]
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    tiles = -(-n // _PRODUCT_TILE["ROWS"]) * (D // _PRODUCT_TILE["COLUMNS"])
    kernels.rows_times[(tiles, count)](rows.contiguous(), matrices, out, n, d, D, scale, **_PRODUCT_TILE)
    return out


def newton_inverse_identity_plus(z: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """(I + αZᵀZ)⁻¹ of rows no longer than 1, padded to (D, D), and how far SX was from I before the last step.

    With SX = I − E, a round makes X ← s(X + XE) and E ← (1 − s)I + sE²: both are one product, of one kernel. If the
    eigenvalues of E lie within ±δ, s = 2/(2 − δ²) centres those of the next one, within δ²/(2 − δ²). E is not computed
    from X again, so rounding adds up; the last step is Newton's own, X ← X + (I − XS)X, which corrects it. The rounding
    of I − XS stays, on the left. :func:`rows_times` takes rows times Xᵀ, where it is relative to the result, also if
    that is a thousand times smaller than the rows, as it is of collapsed features.
    """
    from . import _inverse_kernels as kernels

    m, d = z.shape
    D = padded(d)
    split = z.new_empty(m, 2 * D)
    kernels.split_rows[(m,)](z.contiguous(), split, d, D, 1 << (D - 1).bit_length())
    with products_in_tf32():  # of both parts: together they are exact to 2⁻²²
        products = split[:, :D].T @ split
    largest = 1.0 + alpha * m
    first = 2.0 / (1.0 + largest)
    matrix, pair, other = z.new_empty(D, D), z.new_empty(2 * D, D), z.new_empty(2 * D, D)
    kernels.newton_start[((D // BLOCK) ** 2,)](products, matrix, pair, alpha, first, D, BLOCK)
    tile = _NEWTON_TILE
    grid = (D // tile["ROWS"]) * (D // tile["COLUMNS"])
    delta = first_distance(largest)
    while delta > _CONVERGED:
        scale = 2.0 / (2.0 - delta**2)
        kernels.newton_round[(2 * grid,)](pair, other, scale, D, **tile)
        pair, other, delta = other, pair, delta**2 / (2.0 - delta**2)
    near, residual, inverse = pair[D:], other[:D], other[D:]
    kernels.plus_product[(grid,)](near, near, matrix, residual, -1.0, D, False, **tile)
    kernels.plus_product[(grid,)](near, residual, near, inverse, 1.0, D, True, **tile)
    return inverse, residual.diagonal().abs().amax()
