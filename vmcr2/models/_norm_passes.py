"""Starts the kernels of BatchNorm: chooses between one kernel and two, and how the rows are divided.

A tensor here is (n, C, H, W), channels last, or (n, C). For the kernels it is a dense matrix (rows, C).
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Norm = nn.BatchNorm1d | nn.BatchNorm2d

CHANNELS = 64
"""Channels of a program that sums over rows."""
_ROWS = 32  # that it reads at a time
_WARPS = 8
_STAGES = 4  # of which all but one are being read while one is added up
_PROGRAMS = 512
"""A sum over samples is split into so many programs (parts × blocks of channels): four per multiprocessor, all at work
at once. More would overlap no more loads, and give the last one more parts to add up."""
_PARTS = 32  # that the last program reads at a time
_BLOCK = 2048
SMALL_ROWS = 2048
"""A norm of at most so many rows takes one kernel each way: a program has them all in its registers."""
_SMALL_CHANNELS = 8  # of such a program: 64 programs for 512 channels
_SMALL_PER_THREAD = 32

_COUNTERS: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()


class Gradients(NamedTuple):
    """Of x, the residual, weight and bias."""

    x: Tensor
    residual: Tensor | None
    weight: Tensor
    bias: Tensor


def forward_pass(
    x: Tensor, addend: Tensor | None, residual: Tensor | None, norm: Norm, rectify: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """x + addend, [relu](norm(x + addend) + residual), and the table of statistics. Updates the running ones."""
    if not is_small(x):
        out, table = statistics(x, addend, norm)
        return out, _normalised(out, residual, table, rectify), table
    from . import _small_norm_kernels as kernels

    channels = x.shape[1]
    out = x if addend is None else torch.empty_like(x)
    y, table = torch.empty_like(x), torch.empty(4, channels, device=x.device)
    grid, shape, warps = _small_launch(x)
    kernels.small_forward[grid](
        x,
        _or(addend, x),
        _or(residual, x),
        out,
        y,
        *_held(norm),
        table,
        x.numel() // channels,
        norm.momentum,
        norm.eps,
        channels,
        addend is not None,
        rectify,
        residual is not None,
        *shape,
        num_warps=warps,
    )
    return out, y, table


def statistics(x: Tensor, addend: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
    """x + addend, and the table (4, C) of its mean, 1/deviation, scale and offset. Updates the running statistics."""
    from . import _norm_kernels as kernels

    channels = x.shape[1]
    rows, parts, per_part, partial = _parts(x)
    out = x if addend is None else torch.empty_like(x)
    table = torch.empty(4, channels, device=x.device)
    kernels.statistics[(parts, channels // CHANNELS)](
        x,
        _or(addend, x),
        out,
        partial,
        counters_of(norm, x)[0],
        *_held(norm),
        table,
        rows,
        per_part,
        norm.momentum,
        norm.eps,
        channels,
        addend is not None,
        _ROWS,
        CHANNELS,
        _PARTS,
        _STAGES,
        num_warps=_WARPS,
    )
    return out, table


def _normalised(x: Tensor, residual: Tensor | None, table: Tensor, rectify: bool) -> Tensor:
    from . import _norm_kernels as kernels

    y = torch.empty_like(x)
    kernels.apply[(_blocks(x),)](
        x, _or(residual, x), y, table, x.numel(), x.shape[1], rectify, residual is not None, _BLOCK
    )
    return y


def pooled(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The normalised x after ReLU and max-pooling, and which tap each window took."""
    from . import _pool_kernels as kernels

    n, channels, height, width = x.shape
    shape = (n, channels, height // 2, width // 2)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    taken = torch.empty_like(y, dtype=torch.uint8)
    kernels.pool_apply[(_blocks(y),)](x, y, taken, table, y.numel(), height, width, channels, _BLOCK)
    return y, taken


def backward_pass(
    gradient: Tensor,
    second: Tensor | None,
    skip: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    table: Tensor,
    norm: Norm,
    *,
    rectify: bool,
    with_residual: bool,
) -> Gradients:
    """All gradients; ``gradient`` + ``second`` is that of y, and ``skip`` is added to that of x.

    ``y`` says where the ReLU was open, if a residual was added. Without one, x does.
    """
    if is_small(x):
        return _small_backward(gradient, second, skip, x, y, table, rectify, with_residual)
    from . import _norm_kernels as kernels

    channels = x.shape[1]
    rows, parts, per_part, partial = _parts(x)
    by_weight, by_bias, means = (torch.empty(size, channels, device=x.device) for size in (1, 1, 2))
    stored = torch.empty_like(x) if with_residual or second is not None else None
    kernels.backward_sums[(parts, channels // CHANNELS)](
        gradient,
        _or(second, x),
        x,
        _or(y, x),
        _or(stored, x),
        table,
        partial,
        counters_of(norm, x)[1],
        by_weight,
        by_bias,
        means,
        rows,
        per_part,
        channels,
        rectify,
        with_residual,
        second is not None,
        stored is not None,
        _ROWS,
        CHANNELS,
        _PARTS,
        _STAGES,
        num_warps=_WARPS,
    )
    # what was stored only because it has two sources is not needed again: its memory takes the gradient of x
    by_x = stored if stored is not None and not with_residual else torch.empty_like(x)
    kernels.backward_apply[(_blocks(x),)](
        _or(stored, gradient),
        x,
        _or(skip, x),
        table,
        means,
        by_x,
        x.numel(),
        channels,
        rectify and stored is None,
        skip is not None,
        _BLOCK,
    )
    return Gradients(by_x, stored if with_residual else None, by_weight[0], by_bias[0])


def _small_backward(
    gradient: Tensor,
    second: Tensor | None,
    skip: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    table: Tensor,
    rectify: bool,
    with_residual: bool,
) -> Gradients:
    from . import _small_norm_kernels as kernels

    channels = x.shape[1]
    by_weight, by_bias = (torch.empty(channels, device=x.device) for _ in range(2))
    by_x, by_residual = torch.empty_like(x), torch.empty_like(x) if with_residual else None
    grid, shape, warps = _small_launch(x)
    kernels.small_backward[grid](
        gradient,
        _or(second, x),
        x,
        _or(y, x),
        _or(skip, x),
        table,
        by_x,
        _or(by_residual, x),
        by_weight,
        by_bias,
        x.numel() // channels,
        channels,
        rectify,
        with_residual,
        second is not None,
        skip is not None,
        *shape,
        num_warps=warps,
    )
    return Gradients(by_x, by_residual, by_weight, by_bias)


def pool_backward_pass(gradient: Tensor, x: Tensor, taken: Tensor, table: Tensor, norm: Norm) -> Gradients:
    """All gradients, through the pool."""
    from . import _pool_kernels as kernels

    channels, height, width = x.shape[1:]
    rows, parts, per_part, partial = _parts(x)
    by_weight, by_bias, means = (torch.empty(size, channels, device=x.device) for size in (1, 1, 2))
    kernels.pool_backward_sums[(parts, channels // CHANNELS)](
        gradient,
        x,
        taken,
        table,
        partial,
        counters_of(norm, x)[1],
        by_weight,
        by_bias,
        means,
        rows,
        per_part,
        height,
        width,
        channels,
        _ROWS,
        CHANNELS,
        _PARTS,
        num_warps=_WARPS,
    )
    by_x = torch.empty_like(x)
    kernels.pool_backward_apply[(_blocks(x),)](
        gradient, x, taken, table, means, by_x, x.numel(), height, width, channels, _BLOCK
    )
    return Gradients(by_x, None, by_weight[0], by_bias[0])


def counters_of(norm: Norm, x: Tensor) -> Tensor:
    """Zeros for the kernels that count their finished programs: (forward and backward, blocks of channels).

    Each norm has its own. So two norms may run at the same time on two streams; one norm's calls follow one another in
    any case, because of its running statistics. A launch leaves zeros behind.
    """
    counters = _COUNTERS.get(norm)
    if counters is None or counters.device != x.device:
        counters = torch.zeros(2, x.shape[1] // CHANNELS, dtype=torch.int32, device=x.device)
        if not (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            _COUNTERS[norm] = counters  # while a graph is captured nothing runs: such zeros are the graph's own
    return counters


def is_small(x: Tensor) -> bool:
    """Whether one kernel each way is enough."""
    return x.numel() // x.shape[1] <= SMALL_ROWS


def _small_launch(x: Tensor) -> tuple[tuple[int], tuple[int, int], int]:
    """Grid, rows and channels of a program, and its warps."""
    rows = 1 << (x.numel() // x.shape[1] - 1).bit_length()
    warps = min(max(rows * _SMALL_CHANNELS // (32 * _SMALL_PER_THREAD), 1), 32)
    return (x.shape[1] // _SMALL_CHANNELS,), (rows, _SMALL_CHANNELS), warps


def _held(norm: Norm) -> tuple[Tensor | None, ...]:
    return norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked


def _parts(x: Tensor) -> tuple[int, int, int, Tensor]:
    """Rows, parts, rows of a part, and room for its two sums, (parts, 2, C)."""
    channels = x.shape[1]
    rows = x.numel() // channels
    parts = max(1, min(_PROGRAMS * CHANNELS // channels, -(-rows // _ROWS)))
    return rows, parts, -(-rows // parts), torch.empty(parts, 2, channels, device=x.device)


def _blocks(x: Tensor) -> int:
    return -(-x.numel() // _BLOCK)


def _or(given: Tensor | None, stand_in: Tensor) -> Tensor:
    """A kernel takes a pointer even where it does not read it."""
    return stand_in if given is None else given
