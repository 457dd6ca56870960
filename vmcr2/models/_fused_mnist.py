"""The convolutional layers of MNIST's network as three operations: Triton kernels for training on a GPU."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d

from .._shared import fits_triton
from ..distributed import rows_before
from ._convolutions import convolution_dtype

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MOST_IMAGES = (2**31 - 1) // (64 * 28 * 28)  # the kernels' indices have 32 bits
_BLOCK = 128  # positions per program of the first convolution
_PROGRAMS = 528  # of its backward pass: four per multiprocessor
_POOL_BLOCK = 64  # pooled positions per program, with all 64 channels
_LAYERS = (nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Dropout)
_STEPS = 2**16
"""Dropout decides with 16 random bits, so that p is rounded to a multiple of 1/65536."""


def fusable(layers: nn.Sequential, images: Tensor) -> bool:
    """Whether the kernels apply: training on a GPU, in a precision they know, without a gradient of the images.

    And if nobody has put other layers in their place.
    """
    if not fits_triton(images) or tuple(map(type, layers))[:6] != _LAYERS:
        return False
    conv, dropout = cast(nn.Conv2d, layers[0]), cast(nn.Dropout, layers[5])
    return (
        layers.training
        and not images.requires_grad
        and 0 < len(images) <= _MOST_IMAGES
        and images.dtype in _DTYPES
        and convolution_dtype(images) in _DTYPES
        and (torch.is_autocast_enabled(images.device.type) or images.dtype == conv.weight.dtype)
        and dropout.p < 1
    )


def convolutional(layers: nn.Sequential, images: Tensor) -> Tensor:
    """The first six layers on images (n, 1, 32, 32): convolution, ReLU, convolution, ReLU, max-pool, dropout.

    (n, 64, 14, 14), in torch's default order of memory: flattening it makes no copy.
    """
    first, second, dropout = cast(nn.Conv2d, layers[0]), cast(nn.Conv2d, layers[2]), cast(nn.Dropout, layers[5])
    dtype = convolution_dtype(images)
    parameters = (first.weight, first.bias, second.bias)
    weight, bias, late_bias = (cast(Tensor, own).to(dtype).contiguous() for own in parameters)
    hidden = Convolve.apply(images.to(dtype).contiguous(), weight, bias)  # type: ignore[no-untyped-call]
    convolved = conv2d(hidden, second.weight).contiguous(memory_format=torch.channels_last)
    p = dropout.p if dropout.training else 0.0
    return cast(Tensor, Pool.apply(convolved, late_bias, p))  # type: ignore[no-untyped-call]


class Convolve(torch.autograd.Function):
    """max(conv(x) + bias, 0), 3×3, from one channel to 32. It has no gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """(n, 1, 32, 32) -> (n, 32, 30, 30), channels last."""
        from . import _mnist_kernels as kernels

        n = len(x)
        y = torch.empty(n, 32, 30, 30, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows = n * 900
        signs = torch.empty(rows, dtype=torch.int32, device=x.device)
        kernels.convolve[(-(-rows // _BLOCK),)](x, weight, bias, y, signs, rows, _BLOCK, _precision(x))
        ctx.save_for_backward(x, signs)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of weight and bias."""
        from . import _mnist_kernels as kernels
        from ._tile_kernels import added

        x, signs = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        rows = len(signs)
        per_part = -(-rows // (_PROGRAMS * _BLOCK)) * _BLOCK
        parts = -(-rows // per_part)
        partial = torch.empty(parts, 320, device=x.device)
        kernels.convolve_backward[(parts,)](gradient, x, signs, partial, rows, per_part, _BLOCK, _precision(x))
        both = added(partial, x.dtype)  # type: ignore[no-untyped-call]
        return None, both[:288].view(32, 1, 3, 3), both[288:]


class Pool(torch.autograd.Function):
    """dropout(max_pool2d(relu(x + bias), 2)), from channels last to torch's default order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, p: float) -> Tensor:
        """(n, 64, 28, 28) -> (n, 64, 14, 14). The seed is drawn on the device, anew in every replay of a CUDA graph."""
        from . import _mnist_kernels as kernels

        n = len(x)
        y = torch.empty(n, 64, 14, 14, dtype=x.dtype, device=x.device)
        taken = torch.empty(n, 14, 14, 8, dtype=torch.int32, device=x.device)
        seed = torch.randint(2**62, (1,), device=x.device) if p > 0 else taken
        ctx.scale = 1 / (1 - p)
        dropout = (rows_before() * 196, round(p * _STEPS), ctx.scale, p > 0)
        kernels.pool[(_pool_blocks(n),)](x, bias, y, taken, seed, n, *dropout, _POOL_BLOCK, num_warps=8)
        ctx.save_for_backward(taken)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x and bias."""
        from . import _mnist_kernels as kernels
        from ._tile_kernels import added

        (taken,) = ctx.saved_tensors
        n, blocks = len(taken), _pool_blocks(len(taken))
        gradient = gradient.contiguous()
        by_x = torch.empty(
            n, 64, 28, 28, dtype=gradient.dtype, device=gradient.device, memory_format=torch.channels_last
        )
        partial = torch.empty(blocks, 64, device=gradient.device)
        kernels.pool_backward[(blocks,)](gradient, taken, by_x, partial, n, ctx.scale, _POOL_BLOCK)
        return by_x, added(partial, gradient.dtype), None  # type: ignore[no-untyped-call]


def _pool_blocks(n: int) -> int:
    return -(-n * 196 // _POOL_BLOCK)


def _precision(x: Tensor) -> str:
    """Of products: float32 stays float32, whatever torch allows for its own."""
    return "ieee" if x.dtype == torch.float32 else "tf32"
