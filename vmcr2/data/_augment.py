"""The augmentations of the paper's appendix. They run in batches on the device that holds the whole set as uint8.

Shapes are static, and nothing waits for the device. There is no generator: each random decision is a hash of
(seed, draw, sample index), see ``_keys``. So an epoch's images do not depend on batch size, order or
process, and a CUDA graph can be replayed with a new ``draw``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import fits_triton
from ._errors import DataError
from ._keys import below, sample_keys, unit, words
from ._resample import resample, taps_of

_ATTEMPTS = 10  # as many as torchvision makes before it falls back
_MOST_TAPS = 9  # of a filter along one axis, for the kernel, which reads their square for each pixel


class Crops(NamedTuple):
    """What was decided for each sample, all (n,)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor


def augment_crop(
    images: Tensor,
    index: Tensor,
    draw: Tensor,
    *,
    seed: int,
    size: int = 32,
    padding: int = 8,
    flip: bool = True,
    numbers: Tensor | None = None,
) -> Tensor:
    """RandomCrop(size, padding), RandomHorizontalFlip, ToTensor: float32 (n, C, size, size) in [0, 1].

    Args:
        images: the whole set, or the part of it that is on the device, uint8 (N, C, H, W).
        index: the batch's rows in it, (n,).
        draw: 0-dim int64 on the device, the number of the epoch.
        seed: of the run.
        size: height and width of the result.
        padding: of zeros (black) on every side, before cropping.
        flip: mirror each image with probability 1/2.
        numbers: the samples' numbers in the whole set, (n,), which decide what is drawn; ``index`` by default.

    >>> images = torch.full((5, 1, 28, 28), 255, dtype=torch.uint8)
    >>> batch = augment_crop(images, torch.tensor([3, 0]), torch.tensor(0), seed=0)
    >>> batch.shape, batch.unique()
    (torch.Size([2, 1, 32, 32]), tensor([0., 1.]))
    """
    _check(images, size)
    height, width = images.shape[2:]
    _check_crop((height, width), size, padding)
    numbers = index if numbers is None else numbers
    if fits_triton(index) and images[0].numel() < 2**31:
        from ._crop_kernel import crop_kernel

        options = {"seed": seed, "size": size, "padding": padding, "flip": flip}
        cropped: Tensor = crop_kernel(images, index, numbers, draw, **options)  # type: ignore[no-untyped-call]
        return cropped
    crops = decide_crop(numbers, draw, seed, (height, width), size, padding, flip)
    steps = torch.arange(size, device=images.device)
    rows = crops.top[:, None] + steps - padding
    columns = crops.left[:, None] + torch.where(crops.flip[:, None], size - 1 - steps, steps) - padding
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    where = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
    # one position per pixel, shared by the channels: 0.17 ms for 2000 on an H200, 0.29 by indexing with four tensors
    batch = images[index].flatten(2)
    taken = batch.gather(2, where.flatten(1)[:, None].expand(-1, batch.shape[1], -1))
    return _to_unit(taken.view(*batch.shape[:2], size, size) * inside[:, None])


def decide_crop(
    index: Tensor, draw: Tensor, seed: int, shape: tuple[int, int], size: int, padding: int, flip: bool
) -> Crops:
    """Offsets in the padded image, uniform over all positions, and flips."""
    vertical, horizontal = (length + 2 * padding - size + 1 for length in shape)
    top, left, mirror = words(sample_keys(index, draw, seed), 0, 3).unbind(1)
    full = torch.full_like(top, size)
    return Crops(below(top, vertical), below(left, horizontal), full, full, _flips(mirror, flip))


def augment_resized_crop(
    images: Tensor,
    index: Tensor,
    draw: Tensor,
    *,
    seed: int,
    size: int = 32,
    flip: bool = True,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    numbers: Tensor | None = None,
) -> Tensor:
    """RandomResizedCrop(size), RandomHorizontalFlip, ToTensor: float32 (n, C, size, size) in [0, 1].

    Cuts a box out of each image and resizes it with antialiasing. The box's share of the image's area is uniform in
    ``scale``, and the log of its aspect ratio is uniform in log ``ratio``. Other arguments as in :func:`augment_crop`.

    >>> images = torch.full((5, 3, 64, 64), 51, dtype=torch.uint8)
    >>> batch = augment_resized_crop(images, torch.tensor([3, 0]), torch.tensor(0), seed=0)
    >>> batch.shape, torch.allclose(batch, torch.tensor(0.2))
    (torch.Size([2, 3, 32, 32]), True)
    """
    _check(images, size)
    numbers = index if numbers is None else numbers
    shape = (images.shape[2], images.shape[3])
    _check_boxes(scale, ratio)
    if fits_triton(index) and images[0].numel() < 2**31 and taps_of(max(shape), size) <= _MOST_TAPS:
        from ._resized_crop_kernel import resized_crop_kernel

        options = {"seed": seed, "size": size, "flip": flip, "scale": scale, "ratio": ratio}
        fallback = _fallback(*shape, ratio)
        cut: Tensor = resized_crop_kernel(images, index, numbers, draw, fallback=fallback, **options)  # type: ignore[no-untyped-call]
        return cut
    crops = decide_resized_crop(numbers, draw, seed, shape, scale, ratio, flip)
    result = resample(images, index, crops.top, crops.left, crops.height, crops.width, size)
    return _mirrored(_to_unit(result), crops.flip)


def decide_resized_crop(
    index: Tensor,
    draw: Tensor,
    seed: int,
    shape: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    flip: bool,
) -> Crops:
    """torchvision's rule: the first of ten boxes that fits, else the largest centred one of an allowed aspect."""
    _check_boxes(scale, ratio)
    height, width = shape
    drawn = words(sample_keys(index, draw, seed), 0, 3 + 2 * _ATTEMPTS)
    top, left, mirror = drawn[:, :3].unbind(1)
    # float64: a last bit that differs between vectorised and scalar code must not change how a box is rounded
    area = height * width * (scale[0] + (scale[1] - scale[0]) * unit(drawn[:, 3 : 3 + _ATTEMPTS]))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * unit(drawn[:, 3 + _ATTEMPTS :]))
    widths = torch.round(torch.sqrt(area * aspect)).to(torch.int64)
    heights = torch.round(torch.sqrt(area / aspect)).to(torch.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    attempts = torch.arange(_ATTEMPTS, device=drawn.device)
    first = torch.where(fits, attempts, _ATTEMPTS).amin(1)
    failed = first == _ATTEMPTS
    chosen = first.clamp_max(_ATTEMPTS - 1)[:, None]
    last_height, last_width = _fallback(height, width, ratio)
    box_height = torch.where(failed, last_height, heights.gather(1, chosen)[:, 0])
    box_width = torch.where(failed, last_width, widths.gather(1, chosen)[:, 0])
    return Crops(
        torch.where(failed, (height - last_height) // 2, below(top, height - box_height + 1)),
        torch.where(failed, (width - last_width) // 2, below(left, width - box_width + 1)),
        box_height,
        box_width,
        _flips(mirror, flip),
    )


def flip_only(
    images: Tensor, index: Tensor, draw: Tensor, *, seed: int, size: int, numbers: Tensor | None = None
) -> Tensor:
    """Resize(size), RandomHorizontalFlip, ToTensor: the paper's Tiny ImageNet; sizes as in :func:`plain`.

    >>> images = torch.arange(8, dtype=torch.uint8).reshape(4, 1, 1, 2).expand(4, 1, 2, 2)
    >>> flip_only(images, torch.arange(4), torch.tensor(0), seed=0, size=2)[:, 0, 0] * 255
    tensor([[1., 0.],
            [2., 3.],
            [5., 4.],
            [7., 6.]])
    """
    return flipped(plain(images, index, size=size), index if numbers is None else numbers, draw, seed=seed)


def flipped(x: Tensor, numbers: Tensor, draw: Tensor, *, seed: int) -> Tensor:
    """The samples of these numbers, each mirrored with probability 1/2."""
    mirror = words(sample_keys(numbers, draw, seed), 2, 1)[:, 0]
    return _mirrored(x, _flips(mirror, True))


def plain(images: Tensor, index: Tensor, *, size: int) -> Tensor:
    """For evaluation: float32 (n, C, size, size) in [0, 1], nothing random.

    Smaller images are centred on black, so that MNIST's 28×28 keep the size that they have in training crops. Images of
    this size stay as they are. Larger ones are resized, bilinear with antialiasing.

    >>> plain(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8), torch.tensor([0]), size=4)[0, 0]
    tensor([[0., 0., 0., 0.],
            [0., 1., 1., 0.],
            [0., 1., 1., 0.],
            [0., 0., 0., 0.]])
    """
    _check(images, size)
    height, width = images.shape[2:]
    if height <= size and width <= size:
        down, right = size - height, size - width
        around = (right // 2, right - right // 2, down // 2, down - down // 2)
        return _to_unit(torch.nn.functional.pad(images[index], around))
    if height >= size and width >= size:
        zero = torch.zeros_like(index, dtype=torch.int64)
        return _to_unit(resample(images, index, zero, zero, zero + height, zero + width, size))
    raise DataError(
        f"images of {height}×{width} are neither inside nor outside {size}×{size}: choose another image_size"
    )


def normalize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x − mean) / std per channel, for recipes that standardise; x is (n, C, H, W).

    >>> normalize(torch.ones(1, 2, 1, 1), (0.5, 0.0), (0.5, 2.0)).flatten()
    tensor([1.0000, 0.5000])
    """
    if not len(mean) == len(std) == x.shape[1]:
        raise DataError(f"mean has {len(mean)} and std {len(std)} values, the images have {x.shape[1]} channels")
    if not all(value > 0 for value in std):
        raise DataError(f"std must be above 0 in every channel, got {tuple(std)}")
    return (x - _constants(mean, x)) / _constants(std, x)


def _constants(values: Sequence[float], like: Tensor) -> Tensor:
    # filled on the device: a copy from the host would wait for the device, and cannot be captured
    return torch.stack([like.new_full((1, 1), float(value)) for value in values])


def _check(images: Tensor, size: int) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise DataError(f"images must be uint8 (N, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    if size < 1:
        raise DataError(f"size must be at least 1, got {size}")


def _check_crop(shape: tuple[int, int], size: int, padding: int) -> None:
    if padding < 0 or min(shape) + 2 * padding < size:
        raise DataError(
            f"no crop of {size}×{size} fits into {shape[0]}×{shape[1]} padded by {padding}: raise padding or lower size"
        )


def _check_boxes(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    if not (0 < scale[0] <= scale[1] <= 1 and 0 < ratio[0] <= ratio[1]):
        raise DataError(f"scale must be 0 < low ≤ high ≤ 1 and ratio 0 < low ≤ high, got {scale} and {ratio}")


def _to_unit(pixels: Tensor) -> Tensor:
    return pixels.to(torch.float32) / 255


def _flips(word: Tensor, flip: bool) -> Tensor:
    return below(word, 2) == 1 if flip else torch.zeros_like(word, dtype=torch.bool)


def _mirrored(x: Tensor, flip: Tensor) -> Tensor:
    return torch.where(flip[:, None, None, None], x.flip(3), x)


def _fallback(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """The largest box of an allowed aspect, (height, width)."""
    if width < ratio[0] * height:
        return round(width / ratio[0]), width
    if width > ratio[1] * height:
        return height, round(height * ratio[1])
    return height, width
