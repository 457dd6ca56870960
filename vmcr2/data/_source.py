"""An opened data set, wherever its samples come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ._classes import refuse_controls
from ._split import Reader, Shape, Split, TrainingOnly, joint_checksum


@dataclass(frozen=True)
class Source:
    """An opened data set. Of a known one, opening reads only class names; ``train()`` and ``test()`` read their files.

    :func:`open_data` opens a known one by its name; :func:`from_folder`, :func:`from_table`, :func:`from_arrays` and
    :func:`from_dataset` make one of a person's own data.
    """

    name: str
    """of a known data set; "pictures" (a folder), "table", "given-pictures" or "given-rows" (made in Python)"""
    path: Path | None
    """the packed file, the raw folder or archive, the table; None for digits, and for what was made in Python"""
    class_names: tuple[str, ...]
    _reader: Reader = field(repr=False, compare=False)
    title: str = ""
    """what people call it: the folder's or the file's name; empty for a known data set"""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """settings of the section ``data`` that open the same again, by flat name"""
    notes: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """what a person should know of the reading, in sentences: skipped files, how it was split, filled gaps"""
    preparation: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """of a table: how a row becomes numbers, as JSON's types; a run keeps it"""

    def __post_init__(self) -> None:
        refuse_controls(self.class_names, self.path or self.title or self.name)

    def train(self) -> Split:
        """The training samples and labels."""
        return self._reader.read("train")

    def test(self) -> Split:
        """The test samples and labels."""
        return self._reader.read("test")

    def val(self) -> Split:
        """The validation samples and labels, if :attr:`has_val`."""
        return self._reader.read("val")

    @property
    def train_labels(self) -> Tensor:
        """The training labels alone: of a packed folder the pictures are not read for it."""
        return self._reader.labels("train")

    @property
    def has_val(self) -> bool:
        """Whether there are validation samples beside the test samples."""
        return "val" in self._reader.parts

    def training_only(self) -> Source:
        """The same without a way to the test samples, for many runs: the training samples are read once."""
        return dataclasses.replace(self, _reader=TrainingOnly(self._reader))

    @property
    def checksum(self) -> str:
        """sha256 over the content of all splits. A packed file has it recorded; raw files are read for it."""
        return joint_checksum(*(self._reader.checksum(part) for part in self._reader.parts))

    @property
    def train_checksum(self) -> str:
        """sha256 over the training split alone, for callers that must not read the test samples."""
        return self._reader.checksum("train")

    @property
    def num_classes(self) -> int:
        """k."""
        return len(self.class_names)

    @property
    def sample_shape(self) -> Shape:
        """(channels, height, width) of pictures, (columns,) of rows."""
        return self._reader.shape

    @property
    def is_pictures(self) -> bool:
        """Pictures, not rows of numbers."""
        return len(self.sample_shape) == 3

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of pictures."""
        channels, height, width = self.sample_shape
        return channels, height, width
