"""Images without meaning, of a data set's size, that are in memory before a clock starts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..data import DATASETS, Part, Reader, Source, Split

SEEN = 32
"""Height and width that the networks of the paper see."""


class ReadyImages(Reader):
    """Splits that are in memory. Their checksum is computed only if somebody asks: it takes a second for a gigabyte."""

    def __init__(self, splits: Mapping[Part, Split], classes: int) -> None:
        _, *shape = splits["train"].images.shape
        super().__init__(None, tuple(f"class {j}" for j in range(classes)), tuple(shape))
        self._splits = splits

    def load(self, part: Part) -> Split:
        return self._splits[part]

    def read(self, part: Part) -> Split:
        return self.load(part)

    def checksum(self, part: Part) -> str:
        if part not in self._checksums:
            super().read(part)
        return self._checksums[part]


def ready_source(data: str, splits: Mapping[Part, Split]) -> Source:
    """These splits in the place of a known data set."""
    reader = ReadyImages(splits, DATASETS[data].classes)
    return Source(data, None, reader.class_names, reader)


def labelled(pixels: Tensor, classes: int) -> Split:
    """Images with one class after the other as labels."""
    return Split(pixels, torch.arange(len(pixels)) % classes)


def shape_of(data: str, images: int | None, *, largest: int | None = SEEN) -> tuple[int, int, int, int]:
    """(N, C, H, W) of a data set's training images, or of fewer, at most ``largest`` pixels high and wide."""
    info = DATASETS[data]
    channels, height, width = info.image_shape
    most = largest or max(height, width)
    return min(images or info.train_size, info.train_size), channels, min(height, most), min(width, most)


def random_source(data: str, images: int | None = None, *, largest: int | None = SEEN) -> Source:
    """Random images in the place of a data set, as many as it has or fewer; of test images a tenth as many."""
    generator = torch.Generator().manual_seed(0)
    count, *shape = shape_of(data, images, largest=largest)
    sizes: dict[Part, int] = {"train": count, "test": max(1, count // 10)}
    splits = {
        part: labelled(
            torch.randint(0, 256, (size, *shape), dtype=torch.uint8, generator=generator), DATASETS[data].classes
        )
        for part, size in sizes.items()
    }
    return ready_source(data, splits)
