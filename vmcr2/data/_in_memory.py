"""A reader of splits that are in memory already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ._split import Part, Reader, Shape, Split

_ORDER: tuple[Part, ...] = ("train", "val", "test")


class MemoryReader(Reader):
    """Splits that were read, or made in Python."""

    def __init__(
        self, splits: Mapping[Part, Split], class_names: tuple[str, ...], shape: Shape, path: Path | None = None
    ) -> None:
        super().__init__(path, class_names, shape)
        self._splits = splits
        self.parts = tuple(part for part in _ORDER if part in splits)

    def load(self, part: Part) -> Split:
        """The split."""
        return self._splits[part]
