"""Bilinear resizing with a filter that grows when an image shrinks (antialiasing), each image from its own box."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor


def resample(
    images: Tensor, index: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int
) -> Tensor:
    """The boxes of ``images[index]`` resized to (n, C, size, size), float32 in the images' own scale.

    The box of a sample is rows top..top+height and columns left..left+width, tensors of shape (n,). Same filter as
    Pillow's ``resize(BILINEAR)`` of the cropped image and ``interpolate(antialias=True)``, without rounding to bytes.
    It uses only gathers and elementwise sums in a fixed order. So an image's result is the same, bit for bit, in any
    batch. A batched matrix product does not promise that.
    """
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None]
    rows, row_weights = _taps(top, height, images.shape[2], size)
    squeezed = reduce(
        torch.add,
        (
            images[index[:, None, None], channels, rows[:, None, :, tap]] * row_weights[:, None, :, tap, None]
            for tap in range(rows.shape[2])
        ),
    )
    columns, column_weights = _taps(left, width, images.shape[3], size)
    every = (-1, *squeezed.shape[1:3], -1)
    return reduce(
        torch.add,
        (
            squeezed.gather(3, columns[:, None, None, :, tap].expand(every)) * column_weights[:, None, None, :, tap]
            for tap in range(columns.shape[2])
        ),
    )


def resize_matrix(length: int, size: int) -> Tensor:
    """(size, length): its product with a whole axis is what :func:`resample` makes of it.

    >>> resize_matrix(4, 2)
    tensor([[0.4286, 0.4286, 0.1429, 0.0000],
            [0.0000, 0.1429, 0.4286, 0.4286]])
    """
    positions, weights = _taps(torch.zeros(1), torch.full((1,), float(length)), length, size)
    return torch.zeros(size, length).scatter_add_(1, positions[0], weights[0])


def taps_of(length: int, size: int) -> int:
    """Source positions that may count for one pixel: those of the widest box, the whole axis, so that it is static."""
    return 2 * math.ceil(max(1.0, length / size)) + 1


def _taps(start: Tensor, extent: Tensor, length: int, size: int) -> tuple[Tensor, Tensor]:
    """Source positions and weights, both (n, size, taps), along an axis of ``length``; boxes lie inside the axis."""
    taps = taps_of(length, size)
    start, extent = start.to(torch.float32)[:, None, None], extent.to(torch.float32)[:, None, None]
    scale = extent / size
    support = scale.clamp_min(1.0)
    centre = start + (torch.arange(size, device=start.device)[None, :, None] + 0.5) * scale
    position = torch.floor(centre - support + 0.5) + torch.arange(taps, device=start.device)
    weight = (1.0 - (position + 0.5 - centre).abs() / support).clamp_min(0.0)
    weight = weight * ((position >= start) & (position < start + extent))
    return position.clamp(0, length - 1).to(torch.int64), weight / weight.sum(2, keepdim=True)
