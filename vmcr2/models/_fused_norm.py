"""BatchNorm and the operations around it as one: Triton kernels for training on a GPU, torch's own everywhere else."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d, relu

from .._shared import fits_triton
from ..distributed import in_whole_batch
from ._norm_passes import CHANNELS, Norm, Upstream, backward_pass, normalised, statistics
from ._pool_passes import Windows, pool_backward_pass, pooled
from ._small_norm_passes import is_small, small_backward_pass, small_forward_pass


def norm_relu(norm: Norm, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual)."""
    return norm_relu_twice(norm, x, residual)[0]


def norm_relu_twice(norm: Norm, x: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """relu(norm(x) + residual) for two readers: the kernels add up their gradients, autograd need not."""
    if fusable(norm, x):
        y, again = _apply(norm, x, Wanted(twice=True), residual=residual)
        return y, again
    out = norm(x)
    y = relu(out if residual is None else out + residual)
    return y, y


def add_norm_relu(norm: Norm, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x = a + b, and relu(norm(x)) for two readers. One pass adds and sums up; x's gradient is added in the kernels.

    ``a`` may be overwritten by x.
    """
    if fusable(norm, a):
        y, again, x = _apply(norm, a, Wanted(twice=True, total=True), addend=b)
        return x, y, again
    if b is not None:
        a += b
    y = relu(norm(a))
    return a, y, y


def norm_alone(norm: Norm, x: Tensor) -> Tensor:
    """norm(x)."""
    if fusable(norm, x):
        return _apply(norm, x, Wanted(rectify=False))[0]
    return cast(Tensor, norm(x))


def norm_relu_pool(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """max_pool2d(relu(norm(x)), 3, stride 2, padding 1)."""
    if fusable(norm, x) and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
        return _apply(norm, x, Wanted(pool=True))[0]
    return max_pool2d(relu(norm(x)), kernel_size=3, stride=2, padding=1)


def fusable(norm: Norm, x: Tensor) -> bool:
    """Whether the kernels apply: training on a GPU, channels last, 2ⁿ channels, statistics as torch keeps them."""
    channels = x.shape[1]
    return (
        fits_triton(x)
        and not in_whole_batch()  # the kernels' statistics are of this process's rows
        and type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)  # not one that synchronises processes
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and channels >= CHANNELS
        and channels & (channels - 1) == 0
        and x.numel() > channels  # a single row has no variance, and torch says so
        and _is_dense(x)
    )


def _is_dense(x: Tensor) -> bool:
    """Whether the memory is a matrix of rows and channels, without gaps."""
    if x.ndim == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.ndim == 2 and x.is_contiguous()


def _dense(x: Tensor, like: Tensor) -> Tensor:
    format_ = torch.channels_last if like.ndim == 4 else torch.contiguous_format
    return x.to(like.dtype).contiguous(memory_format=format_)


class Wanted(NamedTuple):
    """What a call of the fused norm computes."""

    rectify: bool = True
    """ReLU at the end."""
    pool: bool = False
    """Max-pooling after it."""
    twice: bool = False
    """The output for two readers."""
    total: bool = False
    """The normalised tensor itself too, for what goes past the norm."""


def _apply(
    norm: Norm, x: Tensor, wanted: Wanted, *, addend: Tensor | None = None, residual: Tensor | None = None
) -> tuple[Tensor, ...]:
    addend, residual = (None if other is None else _dense(other, x) for other in (addend, residual))
    applied = FusedNorm.apply(x, addend, residual, norm.weight, norm.bias, norm, wanted)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, ...], applied)


class FusedNorm(torch.autograd.Function):
    """[pool](relu(norm(x + addend) + residual)) and its gradient, by the kernels that ``_norm_passes`` starts.

    Two outputs that share memory are one tensor under two names, so that each name has a gradient of its own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        addend: Tensor | None,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: Norm,
        wanted: Wanted,
    ) -> tuple[Tensor, ...]:
        """Returns what is wanted, y first, and updates the running statistics."""
        windows = Windows(None, None)  # type: ignore[arg-type]
        if is_small(x) and not wanted.pool:
            total, y, table = small_forward_pass(x, addend, residual, norm, wanted.rectify)
        else:
            total, table = statistics(x, addend, norm)
            if wanted.pool:
                y, windows = pooled(total, table)
            else:
                y = normalised(total, residual, table, wanted.rectify)
        mask = y if residual is not None and wanted.rectify else None
        ctx.save_for_backward(total, mask, table, *windows)
        ctx.set_materialize_grads(False)
        ctx.wanted, ctx.norm = wanted, norm
        ctx.with_addend, ctx.with_residual = addend is not None, residual is not None
        outputs = [y]
        if wanted.twice:
            outputs.append(y.detach())
        if wanted.total:
            outputs.append(total.detach())
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """At most two passes: first the sums over samples, then the gradients of x and of the residual."""
        x, mask, table, *windows = ctx.saved_tensors
        taken = windows[0]
        upstream = _upstream(gradients, ctx.wanted, x if taken is None else taken, x)
        flags = {"rectify": ctx.wanted.rectify, "with_residual": ctx.with_residual}
        if taken is not None:
            found = pool_backward_pass(upstream.first, x, Windows(*windows), table, ctx.norm)
        elif is_small(x):
            found = small_backward_pass(upstream, x, mask, table, **flags)
        else:
            found = backward_pass(upstream, x, mask, table, ctx.norm, **flags)
        by_addend = found.x if ctx.with_addend else None
        return found.x, by_addend, found.residual, found.weight, found.bias, None, None


def _upstream(gradients: tuple[Tensor | None, ...], wanted: Wanted, y: Tensor, x: Tensor) -> Upstream:
    """The gradients sorted by what they are of. Of y, which has this tensor's shape, there is at least one."""
    skip = gradients[-1] if wanted.total else None
    of_y = gradients[:-1] if wanted.total else gradients
    readers = [_dense(gradient, x) for gradient in of_y if gradient is not None]
    first = readers[0] if readers else torch.zeros_like(y, dtype=x.dtype)
    second = readers[1] if len(readers) > 1 else None
    return Upstream(first, second, None if skip is None else _dense(skip, x))
