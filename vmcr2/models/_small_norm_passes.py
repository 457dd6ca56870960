"""Starts the kernels of BatchNorm for inputs of few rows: one kernel each way."""

from __future__ import annotations

import torch
from torch import Tensor

from ._norm_passes import Gradients, Norm, Upstream, either, held

SMALL_ROWS = 2048
"""A norm of at most so many rows takes one kernel each way: a program has them all in its registers."""
_CHANNELS = 8  # of such a program: 64 programs for 512 channels
_PER_THREAD = 32  # entries


def is_small(x: Tensor) -> bool:
    """Whether one kernel each way is enough."""
    return x.numel() // x.shape[1] <= SMALL_ROWS


def small_forward_pass(
    x: Tensor, addend: Tensor | None, residual: Tensor | None, norm: Norm, rectify: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """x + addend, [relu](norm(x + addend) + residual), and the table of statistics. Updates the running ones."""
    from . import _small_norm_kernels as kernels

    channels = x.shape[1]
    out = x if addend is None else torch.empty_like(x)
    y, table = torch.empty_like(x), torch.empty(4, channels, device=x.device)
    grid, sizes, warps = _launch(x)
    kernels.small_forward[grid](
        x,
        either(addend, x),
        either(residual, x),
        out,
        y,
        *held(norm),
        table,
        x.numel() // channels,
        norm.momentum,
        norm.eps,
        channels,
        addend is not None,
        rectify,
        residual is not None,
        *sizes,
        num_warps=warps,
    )
    return out, y, table


def small_backward_pass(
    upstream: Upstream, x: Tensor, y: Tensor | None, table: Tensor, *, rectify: bool, with_residual: bool
) -> Gradients:
    """All gradients. ``y`` says where the ReLU was open, if a residual was added. Without one, x does."""
    from . import _small_norm_kernels as kernels

    channels = x.shape[1]
    gradient, second, skip = upstream
    by_weight, by_bias = (torch.empty(channels, device=x.device) for _ in range(2))
    by_x, by_residual = torch.empty_like(x), torch.empty_like(x) if with_residual else None
    grid, sizes, warps = _launch(x)
    kernels.small_backward[grid](
        gradient,
        either(second, x),
        x,
        either(y, x),
        either(skip, x),
        table,
        by_x,
        either(by_residual, x),
        by_weight,
        by_bias,
        x.numel() // channels,
        channels,
        rectify,
        with_residual,
        second is not None,
        skip is not None,
        *sizes,
        num_warps=warps,
    )
    return Gradients(by_x, by_residual, by_weight, by_bias)


def _launch(x: Tensor) -> tuple[tuple[int], tuple[int, int], int]:
    """Grid, rows and channels of a program, and its warps."""
    rows = 1 << (x.numel() // x.shape[1] - 1).bit_length()
    warps = min(max(rows * _CHANNELS // (32 * _PER_THREAD), 1), 32)
    return (x.shape[1] // _CHANNELS,), (rows, _CHANNELS), warps
