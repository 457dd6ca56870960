"""The cache's file of packed pictures: written row by row, read whole or mapped.

It is a safetensors file. Its header has a fixed length, because it is written last: it contains the checksums, and how
many pictures could be decoded.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ._errors import DataError
from ._memory import free_memory
from ._packed_file import fits_together, opened, texts_of
from ._split import Part, Reader, Shape, Split, split_checksum

FORMAT = "vmcr2-pictures-1"
_BLOCK = 1 << 18


class PictureFile:
    """Writes pictures and labels of one split after the other; ``finish`` makes the file readable.

    Args:
        path: a new file, which nobody reads before ``finish``.
        shape: (channels, height, width) of every picture.
        expected: how many pictures each split has if none is broken; the splits come in this order.
        reserve: bytes for the header.
    """

    def __init__(self, path: Path, shape: Shape, expected: Mapping[Part, int], reserve: int) -> None:
        self._shape = shape
        self._expected = dict(expected)
        self._header = -(-reserve // 8) * 8
        self._labels: dict[Part, array[int]] = {part: array("q") for part in expected}
        # optimistic: the checksum starts with the number of pictures
        self._digests = {part: hashlib.sha256(_start(count, shape)) for part, count in expected.items()}
        self._stream = path.open("w+b", buffering=_BLOCK)
        self._stream.seek(8 + self._header)

    def __enter__(self) -> PictureFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def add(self, part: Part, pixels: bytes, label: int) -> None:
        """The next picture."""
        self._stream.write(pixels)
        self._digests[part].update(pixels)
        self._labels[part].append(label)

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Write labels and header. ``metadata`` is kept beside the checksums."""
        sums = self._checksums()
        row = _product(self._shape)
        tensors: dict[str, Any] = {}
        end = 0
        for part, labels in self._labels.items():
            start, end = end, end + row * len(labels)
            tensors[f"{part}_images"] = _entry("U8", [len(labels), *self._shape], start, end)
        self._stream.seek(8 + self._header + end)
        if gap := -end % 8:  # labels start at multiples of 8, and the format allows no holes
            tensors["padding"] = _entry("U8", [gap], end, end + gap)
            self._stream.write(bytes(gap))
            end += gap
        for part, labels in self._labels.items():
            start, end = end, end + 8 * len(labels)
            tensors[f"{part}_labels"] = _entry("I64", [len(labels)], start, end)
            self._stream.write(_little_endian(labels))
        about = {"format": FORMAT, **metadata, **{f"{part}_sha256": found for part, found in sums.items()}}
        text = json.dumps({"__metadata__": about, **tensors}).encode()
        if len(text) > self._header:
            raise RuntimeError(f"the header takes {len(text)} bytes, but {self._header} were reserved")
        self._stream.truncate()
        self._stream.seek(0)
        self._stream.write(self._header.to_bytes(8, "little") + text.ljust(self._header))

    def _checksums(self) -> dict[Part, str]:
        """As :func:`split_checksum` computes them."""
        sums: dict[Part, str] = {}
        row, start = _product(self._shape), 8 + self._header
        for part, labels in self._labels.items():
            digest = self._digests[part]
            if len(labels) != self._expected[part]:  # some were broken: again, from what was written
                digest = hashlib.sha256(_start(len(labels), self._shape))
                self._stream.seek(start)
                left = row * len(labels)
                while left > 0:
                    block = self._stream.read(min(left, _BLOCK))
                    digest.update(block)
                    left -= len(block)
            start += row * len(labels)
            digest.update(_little_endian(labels))
            sums[part] = digest.hexdigest()
        return sums


class StoredPictures(Reader):
    """A file that :class:`PictureFile` wrote; ``metadata`` is what was kept there."""

    def __init__(self, path: Path, folder: Path) -> None:
        with opened(path, _AGAIN) as handle:
            self.metadata: dict[str, str] = handle.metadata() or {}
            if self.metadata.get("format") != FORMAT:
                raise DataError(f"{path} was packed by another version: {_AGAIN}")
            shape = tuple(handle.get_slice("train_images").get_shape()[1:])
        class_names, notes = texts_of(self.metadata.get("class_names", "")), _notes(self.metadata)
        if class_names is None or notes is None or len(shape) != 3 or 0 in shape:
            raise DataError(f"{path} does not describe its pictures: {_AGAIN}")
        super().__init__(folder, class_names, shape)
        self.notes = notes
        """what packing found: how many pictures are broken or moving, classes without a test picture"""
        self.file = path
        order: tuple[Part, ...] = ("train", "val", "test")
        self.parts = tuple(part for part in order if f"{part}_sha256" in self.metadata)

    def load(self, part: Part) -> Split:
        """A verified copy; of a split that takes more than half of the free memory, a tensor that maps the file."""
        with opened(self.file, _AGAIN) as handle:
            split = Split(handle.get_tensor(f"{part}_images"), self.labels(part))
        if not fits_together(split.images, split.labels, self.shape):
            raise DataError(f"{self.file} has {part} tensors of the wrong shape or type: {_AGAIN}")
        if split.images.numel() > free_memory() / 2:
            # not verified: that would read all of it, and what was verified leaves the memory before it is used
            return split
        # cloned: if the file changed after this check, a mapped tensor would change too
        split = Split(split.images.clone(), split.labels)
        if split_checksum(split) != self.checksum(part):
            raise DataError(f"{self.file} has a wrong checksum in its {part} split: {_AGAIN}")
        return split

    def read(self, part: Part) -> Split:
        """The split. Its checksum is recorded already, so there is nothing to keep."""
        return self.load(part)

    def labels(self, part: Part) -> torch.Tensor:
        """The labels alone."""
        with opened(self.file, _AGAIN) as handle:
            found: torch.Tensor = handle.get_tensor(f"{part}_labels").clone()
        known = found.dtype == torch.int64 and found.ndim == 1 and len(found) > 0
        if not known or int(found.min()) < 0 or int(found.max()) >= len(self.class_names):
            raise DataError(f"{self.file} has {part} labels outside 0..{len(self.class_names) - 1}: {_AGAIN}")
        return found

    def checksum(self, part: Part) -> str:
        """The recorded one; nothing is read."""
        return self.metadata[f"{part}_sha256"]


_AGAIN = "remove it, and the pictures are packed again"


def _notes(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """What packing found; None if it is damaged."""
    try:
        about = json.loads(metadata.get("notes", "{}"))
        counts = {what: int(about.get(what, 0)) for what in ("broken", "moving")}
        broken = [(str(name), str(reason)) for name, reason in about.get("first_broken", ())]
        return counts | {"first_broken": broken, "untested": [str(name) for name in about.get("untested", ())]}
    except (AttributeError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def _start(count: int, shape: Shape) -> bytes:
    return repr((count, *shape)).encode()


def _product(shape: Shape) -> int:
    return int(torch.Size(shape).numel())


def _entry(kind: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


def _little_endian(labels: array[int]) -> bytes:
    return torch.tensor(labels, dtype=torch.int64).numpy().astype("<i8").tobytes()
