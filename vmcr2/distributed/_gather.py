"""The rows of all processes on each of them.

The convention: every process computes the same loss of all rows. Then each gives back the gradient of its own rows
alone, times the number of processes. DistributedDataParallel takes the mean over processes, so the network's parameters
get exactly the gradient that one process with all rows would give them. The way back needs no communication.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

_INTO_ONE = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
"""Its name before torch 2.13."""


def processes() -> int:
    """How many work together; 1 without an initialised process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The rows of every process, those of process 0 first; all ``tensors`` have as many rows as each other here.

    Processes may have different numbers of rows, also none. All must call it, and with tensors of the same types.
    """
    sizes = _sizes(tensors[0])
    return tuple(gather_known(one, sizes, factor=len(sizes)) for one in tensors)


def _sizes(like: Tensor) -> list[int]:
    own = torch.tensor([len(like)], dtype=torch.int64, device=like.device)
    every = [torch.empty_like(own) for _ in range(processes())]
    dist.all_gather(every, own)
    sizes: list[int] = torch.cat(every).tolist()
    return sizes


def gather_known(rows: Tensor, sizes: list[int], factor: int = 1) -> Tensor:
    """The rows of every process, whose numbers are known; nothing waits for the device.

    The gradient that comes back is that of the own rows, times ``factor``.
    """
    if rows.is_floating_point():
        return cast(Tensor, _WithGradient.apply(rows, sizes, factor))  # type: ignore[no-untyped-call]
    return _all_rows(rows, sizes)


def _all_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """Padded to one size on the way: gloo and nccl exchange tensors of equal shapes."""
    most = max(sizes)
    if rows.is_cuda and min(sizes) == most and dist.is_nccl_available() and "cuda:nccl" in dist.get_backend_config():
        every = rows.new_empty(sum(sizes), *rows.shape[1:])
        getattr(dist, _INTO_ONE)(every, rows.contiguous())
        return every
    padded = rows.new_zeros(most, *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], factor: int) -> Tensor:
        rank = dist.get_rank()
        ctx.start, ctx.count, ctx.factor = sum(sizes[:rank]), sizes[rank], factor
        return _all_rows(rows.detach(), sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        own = gradient[ctx.start : ctx.start + ctx.count]
        return own if ctx.factor == 1 else own * ctx.factor, None, None
