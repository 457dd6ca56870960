"""Convolutions that cuDNN is slow at, by Triton kernels: two stems, and 1×1 with stride 2. In 16 bits only.

``_convolutions`` decides when they are used. Products of float32 would not use tensor cores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_STEM_BLOCK, _STEM_TILES = 128, 4  # positions per tile (16 KB of output), and tiles per program forward
_STEM_PROGRAMS = 528  # backward: four per multiprocessor, which all run at once
_STEM_WARPS = 4
_BLOCKED_FORWARD = (128, 4, 3)  # of ResNet's stem: positions per program, warps, stages
_BLOCKED_BACKWARD = (64, 8, 2)
_BLOCKED_PROGRAMS = 264  # two per multiprocessor
# rows, columns and depth of a tile, then warps and stages: two programs or more fit on a multiprocessor
_FORWARD = (128, 128, 64, 8, 3)
_BY_INPUT = (128, 64, 64, 4, 3)
_BY_WEIGHT = (64, 128, 64, 4, 3)
_WEIGHT_PROGRAMS = 264  # two per multiprocessor
_PART_ROWS = 256  # at least, so that the parts are not larger than what is summed up
CHANNELS_IN, CHANNELS_OUT = 64, 128
"""A shortcut's channels must be multiples of these, the sizes of tiles."""
HALF = (torch.bfloat16, torch.float16)


class Stem(torch.autograd.Function):
    """conv(x), 3×3 with padding 1, from three channels to 64. It has no gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 64, h, w), channels last. The weight is dense, in any order of its taps."""
        from . import _stem_kernels as kernels

        n, _, height, width = x.shape
        y = torch.empty(n, 64, height, width, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows = n * height * width
        programs = -(-rows // (_STEM_BLOCK * _STEM_TILES))
        kernels.convolve[(programs,)](
            x, weight, y, rows, *weight.stride()[1:], height, width, _STEM_BLOCK, _STEM_TILES, num_warps=_STEM_WARPS
        )
        ctx.save_for_backward(x)
        ctx.weight_stride = weight.stride()
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the weight, which has the weight's order of memory."""
        from . import _stem_kernels as kernels
        from ._tile_kernels import added

        (x,) = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        n, _, height, width = x.shape
        rows = n * height * width
        per_part = _per_part(rows, _STEM_PROGRAMS, _STEM_BLOCK)
        parts = -(-rows // per_part)
        partial = torch.empty(parts, 27 * 64, device=x.device)
        strides = ctx.weight_stride[1:]
        kernels.convolve_backward[(parts,)](
            gradient, x, partial, rows, per_part, *strides, height, width, _STEM_BLOCK, num_warps=_STEM_WARPS
        )
        by_weight = added(partial, x.dtype)  # type: ignore[no-untyped-call]
        return None, by_weight.as_strided((64, 3, 3, 3), ctx.weight_stride)


class BlockedStem(torch.autograd.Function):
    """conv(x), 7×7 with stride 2 and padding 3, from three channels to 64. It has no gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """(n, 3, 2h, 2w) -> (n, 64, h, w), channels last. The weight is dense, in any order of its taps."""
        from . import _blocked_stem_kernels as kernels
        from ._block_kernel import blocks_of

        n, height, width = len(x), x.shape[2] // 2, x.shape[3] // 2
        blocks = blocks_of(x, 16, x.dtype)  # type: ignore[no-untyped-call]
        matrix = torch.empty(64, 256, dtype=x.dtype, device=x.device)
        kernels.arrange[(4,)](weight, matrix, *weight.stride()[1:])
        y = torch.empty(n, 64, height, width, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows, (size, warps, stages) = n * height * width, _BLOCKED_FORWARD
        kernels.convolve[(-(-rows // size),)](
            blocks, matrix, y, rows, height, width, size, num_warps=warps, num_stages=stages
        )
        ctx.save_for_backward(blocks)
        ctx.weight_stride = weight.stride()
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the weight, which has the weight's order of memory."""
        from . import _blocked_stem_kernels as kernels
        from ._tile_kernels import added

        (blocks,) = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        n, _, height, width = gradient.shape
        rows, (size, warps, stages) = n * height * width, _BLOCKED_BACKWARD
        per_part = _per_part(rows, _BLOCKED_PROGRAMS, size)
        parts = -(-rows // per_part)
        partial = torch.empty(parts, 147 * 64, device=blocks.device)
        strides = ctx.weight_stride[1:]
        kernels.convolve_backward[(parts,)](
            gradient, blocks, partial, rows, per_part, *strides, height, width, size, num_warps=warps, num_stages=stages
        )
        by_weight = added(partial, blocks.dtype)  # type: ignore[no-untyped-call]
        return None, by_weight.as_strided((64, 3, 7, 7), ctx.weight_stride)


class Shortcut(torch.autograd.Function):
    """x for another reader, and conv(x), 1×1 with stride 2. x is channels last and its sides are even.

    The other reader's gradient is overwritten by the sum of both. So that reader must be a convolution, whose gradient
    is new memory, and the only one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(n, c, 2h, 2w) -> (n, c, 2h, 2w), (n, o, h, w)."""
        from . import _shortcut_kernels as kernels

        n, channels, height, width = x.shape
        out = len(weight)
        y = torch.empty(
            n, out, height // 2, width // 2, dtype=x.dtype, device=x.device, memory_format=torch.channels_last
        )
        rows, (size, columns, depth, warps, stages) = y.numel() // out, _FORWARD
        kernels.convolve[(-(-rows // size) * (out // columns),)](
            x, weight, y, rows, width // 2, channels, out, size, columns, depth, num_warps=warps, num_stages=stages
        )
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        return x.detach(), y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_x: Tensor | None, gradient: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of x and of the weight."""
        x, weight = ctx.saved_tensors
        if gradient is None:
            return by_x, None
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        if ctx.needs_input_grad[0]:
            by_x = torch.zeros_like(x) if by_x is None else by_x.contiguous(memory_format=torch.channels_last)
            _add_by_input(gradient, weight, by_x)
        by_weight = _by_weight(gradient, x) if ctx.needs_input_grad[1] else None
        return by_x, by_weight


def _add_by_input(gradient: Tensor, weight: Tensor, by_x: Tensor) -> None:
    """Add a shortcut's gradient of its input."""
    from . import _shortcut_kernels as kernels

    out, channels = weight.shape[:2]
    rows, (size, columns, depth, warps, stages) = gradient.numel() // out, _BY_INPUT
    kernels.add_by_input[(-(-rows // size) * (channels // columns),)](
        gradient,
        weight,
        by_x,
        rows,
        gradient.shape[3],
        channels,
        out,
        size,
        columns,
        depth,
        num_warps=warps,
        num_stages=stages,
    )


def _by_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """A shortcut's gradient of its weight, (o, c, 1, 1): a sum of parts, in a fixed order."""
    from . import _shortcut_kernels as kernels
    from ._tile_kernels import added

    out, channels = gradient.shape[1], x.shape[1]
    rows, (size, height, columns, warps, stages) = gradient.numel() // out, _BY_WEIGHT
    tiles = (out // height) * (channels // columns)
    per_part = max(_per_part(rows, -(-_WEIGHT_PROGRAMS // tiles), size), _PART_ROWS)
    parts = -(-rows // per_part)
    partial = torch.empty(parts, out * channels, device=x.device)
    kernels.by_weight[(tiles, parts)](
        gradient,
        x,
        partial,
        rows,
        per_part,
        gradient.shape[3],
        channels,
        out,
        size,
        height,
        columns,
        num_warps=warps,
        num_stages=stages,
    )
    by_weight: Tensor = added(partial, x.dtype)  # type: ignore[no-untyped-call]
    return by_weight.view(out, channels, 1, 1)


def _per_part(rows: int, programs: int, block: int) -> int:
    """Rows that each of at most so many programs sums up, in whole blocks."""
    return -(-rows // (programs * block)) * block
