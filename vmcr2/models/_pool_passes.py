"""Starts the kernels of BatchNorm, ReLU and max-pooling."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._norm_passes import CHANNELS, Gradients, Norm, add_up_gradients

_ROWS = 32


class Windows(NamedTuple):
    """What the backward pass needs of each window."""

    taken: Tensor
    """The tap that it took; 9 if nothing was above 0."""
    chosen: Tensor
    """x there."""


def pooled(x: Tensor, table: Tensor) -> tuple[Tensor, Windows]:
    """The normalised x after ReLU and max-pooling, and what each window took."""
    from . import _pool_kernels as kernels

    n, channels, height, width = x.shape
    shape = (n, channels, height // 2, width // 2)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    taken, chosen = torch.empty_like(y, dtype=torch.uint8), torch.empty_like(y)
    rows = y.numel() // channels
    kernels.pool_apply[(-(-rows // _ROWS), channels // CHANNELS)](
        *(x, y, taken, chosen, table, rows, height, width, channels, _ROWS, CHANNELS)
    )
    return y, Windows(taken, chosen)


def pool_backward_pass(gradient: Tensor, x: Tensor, windows: Windows, table: Tensor, norm: Norm) -> Gradients:
    """All gradients, through the pool. Sums over positions are sums over windows, which each gave to one position."""
    from . import _pool_kernels as kernels

    channels, height, width = x.shape[1:]
    rows = x.numel() // channels
    sums = add_up_gradients(gradient, windows.chosen, table, norm)
    by_x = torch.empty_like(x)
    kernels.pool_backward_apply[(-(-rows // _ROWS), channels // CHANNELS)](
        *(gradient, x, windows.taken, table, sums.means, by_x, rows, height, width, channels, _ROWS, CHANNELS)
    )
    return Gradients(by_x, None, sums.by_weight, sums.by_bias)
