"""Starts BatchNorm's kernels: how the rows are divided, and where results go.

A tensor here is (n, C, H, W), channels last, or (n, C). For the kernels it is a dense matrix (rows, C).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ._norm_counters import counters_of

Norm = nn.BatchNorm1d | nn.BatchNorm2d

CHANNELS = 64
"""Channels of a program that sums over rows."""
_PROGRAMS = 264
"""A sum over samples is split into so many programs (parts × blocks of channels), two per multiprocessor. More would
give the last one more parts to add up."""
_PART_ROWS = 128
"""The fewest rows of a part."""
_PARTS = 128  # that the last program reads at a time
_LARGE = 2**24
"""Entries from which loads are pipelined through shared memory."""
BLOCK = 2048
"""Entries of a program that works on each entry alone."""


class Upstream(NamedTuple):
    """The gradients that a norm gets. That of its output is a sum, if two read it."""

    first: Tensor
    second: Tensor | None = None
    skip: Tensor | None = None
    """Goes past the norm, to its input."""


class Gradients(NamedTuple):
    """Of x, the residual, weight and bias."""

    x: Tensor
    residual: Tensor | None
    weight: Tensor
    bias: Tensor


class Sums(NamedTuple):
    """Arguments that the kernels of backward sums share, in their order."""

    partial: Tensor
    counters: Tensor
    by_weight: Tensor
    by_bias: Tensor
    means: Tensor
    rows: int
    per_part: int


def statistics(x: Tensor, addend: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """x + addend, and the table (4, C) of its mean, 1/deviation, scale and offset. Updates the running statistics."""
    from . import _norm_kernels as kernels

    grid, rows, per_part, partial = _divided(x)
    out = x if addend is None else torch.empty_like(x)
    table = torch.empty(4, x.shape[1], device=x.device)
    kernels.statistics[grid](
        x,
        either(addend, x),
        out,
        partial,
        counters_of(norm, grid[1], x.device)[0],
        *held(norm),
        table,
        rows,
        per_part,
        norm.momentum,
        norm.eps,
        x.shape[1],
        addend is not None,
        CHANNELS,
        _PARTS,
        **_way(x),
    )
    return out, table


def normalised(x: Tensor, residual: Tensor | None, table: Tensor, rectify: bool) -> Tensor:
    """[relu](scale·x + offset + residual)."""
    from . import _norm_kernels as kernels

    y = torch.empty_like(x)
    kernels.apply[(blocks(x),)](
        x, either(residual, x), y, table, x.numel(), x.shape[1], rectify, residual is not None, BLOCK
    )
    return y


def backward_pass(
    upstream: Upstream, x: Tensor, y: Tensor | None, table: Tensor, norm: Norm, *, rectify: bool, with_residual: bool
) -> Gradients:
    """All gradients. ``y`` says where the ReLU was open, if a residual was added. Without one, x does."""
    from . import _norm_kernels as kernels

    gradient, second, skip = upstream
    stored = torch.empty_like(x) if with_residual or second is not None else None
    mask = y if with_residual else None
    sums = add_up_gradients(gradient, x, table, norm, second=second, y=mask, stored=stored, rectify=rectify)
    # what was stored only because it has two sources is not needed again: its memory takes the gradient of x
    by_x = stored if stored is not None and not with_residual else torch.empty_like(x)
    kernels.backward_apply[(blocks(x),)](
        either(stored, gradient),
        x,
        either(skip, x),
        table,
        sums.means,
        by_x,
        x.numel(),
        x.shape[1],
        rectify and stored is None,
        skip is not None,
        BLOCK,
    )
    return Gradients(by_x, stored if with_residual else None, sums.by_weight, sums.by_bias)


def add_up_gradients(
    gradient: Tensor,
    x: Tensor,
    table: Tensor,
    norm: Norm,
    *,
    second: Tensor | None = None,
    y: Tensor | None = None,
    stored: Tensor | None = None,
    rectify: bool = True,
) -> Sums:
    """Σg and Σg·x̂ over the rows of x; g is ``gradient`` + ``second`` through the ReLU, kept in ``stored`` if given."""
    from . import _norm_kernels as kernels

    grid, rows, per_part, partial = _divided(x)
    means, by_weight, by_bias = (torch.empty(*size, x.shape[1], device=x.device) for size in ((2,), (), ()))
    sums = Sums(partial, counters_of(norm, grid[1], x.device)[1], by_weight, by_bias, means, rows, per_part)
    kernels.backward_sums[grid](
        gradient,
        either(second, x),
        x,
        either(y, x),
        either(stored, x),
        table,
        *sums,
        x.shape[1],
        rectify,
        y is not None,
        second is not None,
        stored is not None,
        CHANNELS,
        _PARTS,
        **_way(x),
    )
    return sums


def _way(x: Tensor) -> dict[str, int]:
    """How a program reads its rows: a tensor that fits into the L2 cache is there soonest without a pipeline."""
    if x.numel() < _LARGE:
        return {"ROWS": 64, "STAGES": 1, "num_warps": 4}
    return {"ROWS": 32, "STAGES": 4, "num_warps": 8}


def _divided(x: Tensor) -> tuple[tuple[int, int], int, int, Tensor]:
    """Grid (parts, blocks of channels), rows, rows of a part, and room for its two sums, (parts, 2, C)."""
    channels = x.shape[1]
    rows = x.numel() // channels
    parts = max(1, min(_PROGRAMS * CHANNELS // channels, -(-rows // _PART_ROWS)))
    return (
        (parts, channels // CHANNELS),
        rows,
        -(-rows // parts),
        torch.empty(parts, 2, channels, device=x.device),
    )


def held(norm: Norm) -> tuple[Tensor | None, ...]:
    """What a norm holds, in the kernels' order."""
    return norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked


def blocks(x: Tensor) -> int:
    """Programs that work on each entry alone."""
    return -(-x.numel() // BLOCK)


def either(given: Tensor | None, stand_in: Tensor) -> Tensor:
    """A kernel takes a pointer even where it does not read it."""
    return stand_in if given is None else given
