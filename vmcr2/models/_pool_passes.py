"""Starts the kernels of BatchNorm, ReLU and max-pooling."""

from __future__ import annotations

import torch
from torch import Tensor

from ._norm_passes import BLOCK, Gradients, Norm, backward_sums, blocks

_WARPS = 8


def pooled(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised x after ReLU and max-pooling, and which tap each window took."""
    from . import _pool_kernels as kernels

    n, channels, height, width = x.shape
    shape = (n, channels, height // 2, width // 2)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    taken = torch.empty_like(y, dtype=torch.uint8)
    kernels.pool_apply[(blocks(y),)](x, y, taken, table, y.numel(), height, width, channels, BLOCK)
    return y, taken


def pool_backward_pass(gradient: Tensor, x: Tensor, taken: Tensor, table: Tensor, norm: Norm) -> Gradients:
    """All gradients, through the pool."""
    from . import _pool_kernels as kernels

    channels, height, width = x.shape[1:]
    grid, sums, options = backward_sums(x, norm)
    kernels.pool_backward_sums[grid](
        gradient, x, taken, table, *sums, height, width, channels, *options, num_warps=_WARPS
    )
    by_x = torch.empty_like(x)
    kernels.pool_backward_apply[(blocks(x),)](
        gradient, x, taken, table, sums.means, by_x, x.numel(), height, width, channels, BLOCK
    )
    return Gradients(by_x, None, sums.by_weight, sums.by_bias)
