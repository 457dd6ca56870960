"""A split as tensors, its checksum, and what every reader offers."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._errors import DataError

Part = Literal["train", "val", "test"]
"""A data set has training and test samples. Validation samples are a person's own split, where they made one."""
Shape = tuple[int, ...]
"""Of one sample: (channels, height, width) of a picture, (columns,) of a row."""


class Split(NamedTuple):
    """Samples and their classes."""

    inputs: Tensor
    """pictures: uint8 (N, C, H, W); rows of a table: float32 (N, columns)"""
    labels: Tensor
    """int64 (N,)"""

    @property
    def images(self) -> Tensor:
        """The same as ``inputs``, for sets of pictures."""
        return self.inputs


def make_split(
    images: NDArray[np.uint8], labels: NDArray[np.generic], shape: tuple[int, int, int], classes: int, where: str
) -> Split:
    """Arrays of N images and N labels, checked; ``where`` names the file in the errors."""
    if len(images) == 0:
        raise DataError(f"{where} holds no images: is the download complete?")
    if len(images) != len(labels):
        raise DataError(f"{where} holds {len(images)} images but {len(labels)} labels: fetch the files again")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        bad = low if low < 0 else high
        raise DataError(f"{where} has the label {bad}, outside 0..{classes - 1}: the file is corrupt, fetch it again")
    # a copy: an array over bytes is read-only, and torch must own its memory
    pixels = torch.from_numpy(np.array(images, dtype=np.uint8).reshape(len(images), *shape))
    return Split(pixels, torch.from_numpy(labels.astype(np.int64)))


def split_checksum(split: Split) -> str:
    """sha256 over shape, pixels or numbers, and labels; the same wherever the split was read from.

    >>> one = Split(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    >>> split_checksum(one) == split_checksum(Split(one.images.reshape(1, 1, 1, 4), one.labels))
    False
    """
    digest = hashlib.sha256(repr(tuple(split.inputs.shape)).encode())
    digest.update(split.inputs.contiguous().numpy().reshape(-1).data)
    digest.update(split.labels.numpy().astype("<i8").data)
    return digest.hexdigest()


def joint_checksum(*checksums: str) -> str:
    """One checksum of all splits from one of each."""
    return hashlib.sha256(" ".join(checksums).encode()).hexdigest()


class Reader(ABC):
    """A place that holds the splits; of samples nothing is read before ``read``."""

    parts: tuple[Part, ...] = ("train", "test")
    """The splits that it has."""

    def __init__(self, path: Path | None, class_names: tuple[str, ...], shape: Shape) -> None:
        self.path = path
        self.class_names = class_names
        self.shape = shape
        self._checksums: dict[Part, str] = {}

    @abstractmethod
    def load(self, part: Part) -> Split:
        """The split, checked, from that split's files alone."""

    def read(self, part: Part) -> Split:
        """The split; its checksum is kept, because asking for it later must not read the files twice."""
        split = self.load(part)
        self._checksums[part] = split_checksum(split)
        return split

    def labels(self, part: Part) -> Tensor:
        """The split's labels alone; a reader that can leaves the samples unread."""
        return self.read(part).labels

    def checksum(self, part: Part) -> str:
        """The split's sha256; reads the split unless that was done."""
        if part not in self._checksums:
            self.read(part)
        return self._checksums[part]

    def raw_files(self, part: Part | None = None) -> dict[str, Path]:
        """The raw files that exist, by their catalogue names, for the published md5; of one split, if it is named."""
        return {}


class TrainingOnly(Reader):
    """Another reader's training images, read once and kept; its test images cannot be reached."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.path, reader.class_names, reader.shape)
        self.parts = reader.parts
        self._reader = reader
        self._kept: Split | None = None

    def load(self, part: Part) -> Split:
        """The training split as it was first read; validation samples are a hold-out, and may be read."""
        self._refuse_test(part)
        if part == "val":
            return self._reader.read("val")
        if self._kept is None:
            self._kept = self._reader.read("train")
        return self._kept

    def read(self, part: Part) -> Split:
        """The same: the other reader keeps the checksum."""
        return self.load(part)

    def labels(self, part: Part) -> Tensor:
        """Of the training split as it is kept, or as the other reader has them."""
        self._refuse_test(part)
        return self._kept.labels if part == "train" and self._kept is not None else self._reader.labels(part)

    def checksum(self, part: Part) -> str:
        """The split's, as the other reader has it."""
        self._refuse_test(part)
        return self._reader.checksum(part)

    def _refuse_test(self, part: Part) -> None:
        if part == "test":  # a mistake in the program, never the user's
            raise RuntimeError("the test images were asked for, but this data set was opened for training alone")
