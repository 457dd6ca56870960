"""BatchNorm and the operations after it as one: Triton kernels for training on a GPU, torch's own everywhere else."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from .._shared import fits_triton
from ..distributed import in_whole_batch

_BLOCK = 2048
_ROWS = 64
_CHANNELS = 64  # per program that sums over rows
_FEW = 16  # channels per program that adds up the parts: more programs, and each reads all parts at once
_PARTS = 256
_PROGRAMS = 1024
"""A sum over samples is split into so many programs (parts × blocks of channels): eight per multiprocessor, so that
loads overlap."""


def norm_relu(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual)."""
    if fusable(norm, x):
        return _apply(norm, x, residual, pool=False)
    out = norm(x)
    return relu(out if residual is None else out + residual)


def norm_alone(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """norm(x)."""
    if fusable(norm, x):
        return _apply(norm, x, None, pool=False, rectify=False)
    return cast(Tensor, norm(x))


def norm_relu_pool(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """max_pool2d(relu(norm(x)), 3, stride 2, padding 1)."""
    if fusable(norm, x) and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
        return _apply(norm, x, None, pool=True)
    return max_pool2d(relu(norm(x)), kernel_size=3, stride=2, padding=1)


def fusable(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Whether the kernels apply: training on a GPU, channels last, 2ⁿ channels, statistics as torch keeps them."""
    channels = x.shape[1]
    return (
        fits_triton(x)
        and not in_whole_batch()  # the kernels' statistics are of this process's rows
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and channels >= _CHANNELS
        and channels & (channels - 1) == 0
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _apply(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None, *, pool: bool, rectify: bool = True) -> Tensor:
    if residual is not None:
        residual = residual.to(x.dtype).contiguous(memory_format=torch.channels_last)
    applied = FusedNorm.apply(x, residual, norm.weight, norm.bias, norm, rectify, pool)  # type: ignore[no-untyped-call]
    return cast(Tensor, applied)


class FusedNorm(torch.autograd.Function):
    """The operation and its gradient, by the kernels of ``_norm_kernels``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        rectify: bool,
        pool: bool,
    ) -> Tensor:
        """Returns y and updates the running statistics."""
        from . import _norm_kernels as kernels

        n, C, H, W = x.shape
        rows = n * H * W
        table = torch.empty(4, C, device=x.device)
        partial, parts, per_part = _parts(rows, C, x.device)
        grid = (parts, C // _CHANNELS)
        kernels.sums[grid](x, partial, rows, per_part, C, _ROWS, _CHANNELS)
        kernels.finish_sums[(C // _FEW,)](
            x,
            partial,
            weight,
            bias,
            norm.running_mean,
            norm.running_var,
            norm.num_batches_tracked,
            table,
            rows,
            parts,
            norm.momentum,
            norm.eps,
            C,
            _PARTS,
            _FEW,
        )
        taken = None
        if pool:
            y = torch.empty(n, C, H // 2, W // 2, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
            taken = torch.empty_like(y, dtype=torch.uint8)
            kernels.pool_apply[(_blocks(y),)](x, y, taken, table, y.numel(), H, W, C, _BLOCK)
        else:
            y = torch.empty_like(x)
            kernels.apply[(_blocks(x),)](
                x,
                residual if residual is not None else x,
                y,
                table,
                x.numel(),
                C,
                rectify,
                residual is not None,
                _BLOCK,
            )
        ctx.save_for_backward(x, y if residual is not None and rectify else None, table, taken)
        ctx.rectify, ctx.with_residual = rectify, residual is not None
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Two passes: first the sums over samples, then the gradients of x and of the residual."""
        from . import _norm_kernels as kernels

        x, y, table, taken = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        n, C, H, W = x.shape
        rows = n * H * W
        partial, parts, per_part = _parts(rows, C, x.device)
        grid = (parts, C // _CHANNELS)
        by_weight, by_bias, means = (torch.empty(size, C, device=x.device) for size in (1, 1, 2))
        by_x = torch.empty_like(x)
        by_residual = torch.empty_like(x) if ctx.with_residual else None
        flags = (ctx.rectify, ctx.with_residual)
        if taken is not None:
            kernels.pool_backward_sums[grid](
                gradient, x, taken, table, partial, rows, per_part, H, W, C, _ROWS, _CHANNELS
            )
        else:
            kernels.backward_sums[grid](
                gradient, x, x if y is None else y, table, partial, rows, per_part, C, *flags, _ROWS, _CHANNELS
            )
        kernels.finish_backward_sums[(C // _FEW,)](partial, by_weight, by_bias, means, rows, parts, C, _PARTS, _FEW)
        if taken is not None:
            kernels.pool_backward_apply[(_blocks(x),)](
                gradient, x, taken, table, means, by_x, x.numel(), H, W, C, _BLOCK
            )
        else:
            kernels.backward_apply[(_blocks(x),)](
                gradient,
                x,
                x if y is None else y,
                table,
                means,
                by_x,
                by_x if by_residual is None else by_residual,
                x.numel(),
                C,
                *flags,
                _BLOCK,
            )
        return by_x, by_residual, by_weight[0], by_bias[0], None, None, None


def _parts(rows: int, channels: int, device: torch.device) -> tuple[Tensor, int, int]:
    parts = max(1, min(_PROGRAMS * _CHANNELS // channels, -(-rows // (4 * _ROWS))))
    per_part = -(-rows // parts)
    return torch.empty(parts, 2, channels, device=device), parts, per_part


def _blocks(x: Tensor) -> int:
    return -(-x.numel() // _BLOCK)
