"""Faster forms of convolutions that cuDNN is slow at, on small images or with few channels.

All compute what ``nn.Conv2d`` computes, with the same parameters; only the order of summation differs.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_unshuffle

from .._shared import fits_triton
from ._fused_convolutions import CHANNELS_IN, CHANNELS_OUT, HALF, BlockedStem, Shortcut, Stem

_FEWEST_PIXELS = 1024
"""Of a shortcut's output, for its kernels: fewer keep less than 8 of 132 multiprocessors busy with tiles of 128."""


def convolve_3x3(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """A 3×3 convolution with padding 1. It leaves out the taps that see only padding.

    A 1×1 input needs only the centre tap (1/9 of the work); from 2×2 to 1×1, the last four taps are enough.
    """
    size = tuple(x.shape[2:])
    if size == (1, 1):
        return conv2d(x, _taps(conv.weight, 1))
    if size == (2, 2) and conv.stride == (2, 2):
        return conv2d(x, _taps(conv.weight, 2))
    convolved: Tensor = conv(x)
    return convolved


def _taps(weight: Tensor, size: int) -> Tensor:
    """The taps from the centre on, (out, in, size, size). One view: with two slices, autograd fills two gradients."""
    if not weight.requires_grad:  # slices can be exported
        return weight[:, :, 1 : 1 + size, 1 : 1 + size]
    offset = weight.storage_offset() + weight.stride(2) + weight.stride(3)
    return weight.as_strided((*weight.shape[:2], size, size), weight.stride(), offset)


def convolve_stem(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """ImageNet's stem, 7×7 with stride 2 and padding 3: on a GPU as 4×4 with stride 1 over 2×2 blocks of pixels.

    Three channels leave tensor cores idle. Twelve, padded with zeros to a multiple of 8, use them: for 2000 images on
    an H200, forward and backward take 0.24 ms instead of 0.41. Output i uses pixels 2i − 3 … 2i + 3. With a zero tap
    before them these are 2i − 4 … 2i + 3, the blocks i − 2 … i + 1. In training in 16 bits Triton kernels take cuDNN's
    place.
    """
    if _is_fast_stem(conv, x, 7, ((7, 7), (2, 2), (3, 3))) and x.shape[2] % 2 == x.shape[3] % 2 == 0:
        return cast(Tensor, BlockedStem.apply(*_dense(conv, x)))  # type: ignore[no-untyped-call]
    if not x.is_cuda or x.shape[2] % 2 or x.shape[3] % 2:
        convolved: Tensor = conv(x)
        return convolved
    return blocked_stem(conv.weight, x)


def convolve_small_stem(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """The stem for small images, 3×3 with padding 1: for three colours in training on a GPU by Triton kernels."""
    if _is_fast_stem(conv, x, 3, ((3, 3), (1, 1), (1, 1))):
        return cast(Tensor, Stem.apply(*_dense(conv, x)))  # type: ignore[no-untyped-call]
    convolved: Tensor = conv(x)
    return convolved


def _is_fast_stem(conv: nn.Conv2d, x: Tensor, size: int, geometry: tuple[object, ...]) -> bool:
    """Whether kernels for a stem apply: three colours, 64 channels, no gradient of the images."""
    return (
        _trains_in_half(conv, x)
        and conv.weight.shape == (64, 3, size, size)
        and _geometry(conv) == geometry
        and x.ndim == 4
        and x.shape[1] == 3
        and not x.requires_grad
        and 0 < x.numel() // 3 * 64 < 2**31  # entries of the output with stride 1
    )


def _dense(conv: nn.Conv2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """Images and weight in the type of the convolution; the images in torch's default order, the weight in its own."""
    dtype = convolution_dtype(x)
    weight = conv.weight.to(dtype)
    if not weight.is_contiguous(memory_format=torch.channels_last):
        weight = weight.contiguous()
    return x.to(dtype).contiguous(), weight


def convolve_shortcut(conv: nn.Conv2d, x: Tensor, again: Tensor) -> tuple[Tensor, Tensor]:
    """x for the block's 3×3 convolution, its only other reader, and conv(x), 1×1 with stride 2.

    Triton kernels in training on a GPU. They add the gradient of a quarter of the pixels where the other reader left
    its own. ``again`` is x for a second reader, which is torch's own convolution, where the kernels do not fit.
    """
    if (
        _trains_in_half(conv, x)
        and x.dtype == convolution_dtype(x)
        and _geometry(conv) == ((1, 1), (2, 2), (0, 0))
        and conv.in_channels % CHANNELS_IN == 0
        and conv.out_channels % CHANNELS_OUT == 0
        and x.shape[2] % 2 == x.shape[3] % 2 == 0
        and x.numel() // x.shape[1] >= 4 * _FEWEST_PIXELS
        and x.numel() // x.shape[1] // 4 * conv.out_channels < 2**31
        and x.is_contiguous(memory_format=torch.channels_last)
    ):
        same, convolved = Shortcut.apply(x, conv.weight.to(x.dtype).contiguous())  # type: ignore[no-untyped-call]
        return (same if x.requires_grad else x), convolved  # without: the other reader need not compute a gradient
    return x, conv(again)


def _trains_in_half(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether a plain convolution is in training on a GPU, in 16 bits."""
    return (
        fits_triton(x)
        and conv.training
        and type(conv) is nn.Conv2d
        and conv.bias is None
        and conv.groups == 1
        and conv.dilation == (1, 1)
        and convolution_dtype(x) in HALF
        and (torch.is_autocast_enabled(x.device.type) or x.dtype == conv.weight.dtype)
    )


def _geometry(conv: nn.Conv2d) -> tuple[object, ...]:
    return conv.kernel_size, conv.stride, conv.padding


def convolution_dtype(x: Tensor) -> torch.dtype:
    """What torch would convolve in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def blocked_stem(weight: Tensor, x: Tensor) -> Tensor:
    """The stem over 2×2 blocks. Height and width of x must be even."""
    out_channels, channels = weight.shape[:2]
    fill = -4 * channels % 8
    if fits_triton(x) and not x.requires_grad:
        from ._block_kernel import blocks_of

        blocks = blocks_of(x, 4 * channels + fill, x.dtype)  # type: ignore[no-untyped-call]
    else:
        blocks = pad(pixel_unshuffle(pad(x, (4, 2, 4, 2)), 2), (0, 0, 0, 0, 0, fill))
    # (out, c, 4, 2, 4, 2): the block and the place in it, first vertical, then horizontal; pixel_unshuffle's order
    taps = pad(weight, (1, 0, 1, 0)).reshape(out_channels, channels, 4, 2, 4, 2).permute(0, 1, 3, 5, 2, 4)
    taps = pad(taps.reshape(out_channels, 4 * channels, 4, 4), (0, 0, 0, 0, 0, fill))
    return conv2d(
        blocks.contiguous(memory_format=torch.channels_last), taps.contiguous(memory_format=torch.channels_last)
    )
