"""BatchNorm by the statistics of all processes' rows, on CPUs too, where torch's SyncBatchNorm does not run.

Each process sends the mean, the sum of squared deviations and the count of its rows; on the way back the two sums that
the gradient needs. Gradients of weight and bias are of the own rows: the sum over processes is that of one process.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules._functions import SyncBatchNorm


def global_batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``torch.nn.functional.batch_norm``, in training over the rows of all processes. All must call it.

    Args:
        x: (n, C, …), this process's rows; their number may differ between processes.
        running_mean: (C,), updated in place; likewise ``running_var``.
        running_var: as torch keeps it, unbiased.
        weight: (C,).
        bias: (C,).
        training: whether the batch's statistics are used.
        momentum: the part of the running statistics that a batch replaces.
        eps: added to the variance.
    """
    if not training:
        return functional.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    if x.is_cuda:  # torch's own kernels
        group, count = dist.distributed_c10d._get_default_group(), dist.get_world_size()
        applied = SyncBatchNorm.apply(x, weight, bias, running_mean, running_var, eps, momentum, group, count)  # type: ignore[no-untyped-call]
        return cast(Tensor, applied)
    applied = _GlobalNorm.apply(x, weight, bias, running_mean, running_var, momentum, eps)  # type: ignore[no-untyped-call]
    return cast(Tensor, applied)


class _GlobalNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, squares, total = _statistics(values)
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
        inverse = torch.rsqrt(squares / total + eps)
        normal = (values - _wide(mean, x)) * _wide(inverse, x)
        ctx.save_for_backward(normal, weight, inverse, total)
        y = normal if weight is None else normal * _wide(weight, x)
        return (y if bias is None else y + _wide(bias, x)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normal, weight, inverse, total = ctx.saved_tensors
        own = gradient.to(normal.dtype)
        dims = _dims(normal)
        sums = torch.stack([own.sum(dims), (own * normal).sum(dims)])
        by_bias, by_weight = sums.clone()
        dist.all_reduce(sums)
        by_mean, by_deviation = sums / total
        scale = inverse if weight is None else inverse * weight
        by_x = (own - _wide(by_mean, own) - normal * _wide(by_deviation, own)) * _wide(scale, own)
        wanted = ctx.needs_input_grad
        return by_x.to(gradient.dtype), by_weight if wanted[1] else None, by_bias if wanted[2] else None, *[None] * 4


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and sum of squared deviations of each channel over all processes' rows, and their count.

    From each process's own deviations, which keeps the digits of a small variance.
    """
    dims, channels = _dims(x), x.shape[1]
    rows = x.numel() // channels
    mean = x.mean(dims) if rows else x.new_zeros(channels)
    squares = (x - _wide(mean, x)).square().sum(dims)
    own = torch.cat([mean, squares, x.new_full((1,), rows)])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    means, deviations, counts = torch.stack(every).split([channels, channels, 1], dim=1)  # type: ignore[no-untyped-call]
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return mean, (deviations + counts * (means - mean).square()).sum(0), total


def _dims(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (like.ndim - 2))
