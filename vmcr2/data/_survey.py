"""Sizes and modes of all pictures of a data set, and in which shape they are stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .._shared import atomic
from ._errors import DataError

if TYPE_CHECKING:
    from ._decode import Seen

Fit = Literal["crop", "stretch", "pad"]
LARGEST = 128
"""Pictures are stored no larger unless a person asks for it: larger ones are for networks that take days."""
_MOST_SIDE = 4096
_LONGEST = 1 << 24  # no picture that was decoded has a longer side


class Plan(NamedTuple):
    """How pictures are stored."""

    shape: tuple[int, int, int]
    """(channels, height, width)"""
    fit: str
    """crop, stretch, pad; exact: all have this size already"""
    stored_size: int
    """what opens the same again as ``image_size``; 0 for none"""


class Survey:
    """Counts of what was seen, in memory that depends on how different the pictures are, not on how many."""

    def __init__(self, seen: Iterable[Seen] = ()) -> None:
        self.sizes: Counter[tuple[int, int]] = Counter()
        """(width, height) after EXIF rotation"""
        self.modes: Counter[str] = Counter()
        self.coloured = 0
        self.moving = 0
        for one in seen:
            self.add(one)

    def add(self, seen: Seen) -> None:
        """One more picture."""
        self.sizes[seen.width, seen.height] += 1
        self.modes[seen.mode] += 1
        self.coloured += not seen.grey
        self.moving += seen.moving

    @property
    def only_size(self) -> tuple[int, int] | None:
        """(width, height) if all pictures have the same."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else None

    @property
    def median_side(self) -> int:
        """Of the shorter sides; of an even number, the lower one in the middle."""
        sides: Counter[int] = Counter()
        for size, count in self.sizes.items():
            sides[min(size)] += count
        left = (sides.total() + 1) // 2
        for side in sorted(sides):
            left -= sides[side]
            if left <= 0:
                return side
        raise ValueError("the survey is empty")

    def plan(self, image_size: int | None, channels: int | None, fit: Fit) -> Plan:
        """Keep the pictures as they are if they have one small size; otherwise make them square."""
        depth = channels or (3 if self.coloured else 1)
        if self.only_size is not None:
            width, height = self.only_size
            small = max(width, height) <= LARGEST
            if (image_size is None and small) or (width, height) == (image_size, image_size):
                return Plan((depth, height, width), "exact", 0 if small else width)
        side = image_size or min(LARGEST, self.median_side)
        return Plan((depth, side, side), fit, side)

    def write(self, path: Path) -> None:
        """As JSON."""
        record: dict[str, Any] = {
            "sizes": [[*size, count] for size, count in self.sizes.items()],
            "modes": self.modes,
            "coloured": self.coloured,
            "moving": self.moving,
        }
        with atomic(path) as temporary:
            temporary.write_text(json.dumps(record))

    @classmethod
    def read(cls, path: Path) -> Survey | None:
        """What :meth:`write` wrote; None if there is nothing that can be read."""
        survey = cls()
        try:
            record = json.loads(path.read_text())
            sizes = {(int(width), int(height)): int(count) for width, height, count in record["sizes"]}
            survey.sizes.update(sizes)
            survey.modes.update({str(mode): int(count) for mode, count in record["modes"].items()})
            survey.coloured, survey.moving = int(record["coloured"]), int(record["moving"])
            if any(min(*size, count) < 1 or max(size) > _LONGEST for size, count in sizes.items()):
                return None
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ):  # it costs a minute to make again, so nobody needs to hear
            return None
        return survey if survey.sizes else None


def check_options(image_size: int | None, channels: int | None, fit: str, test_share: float) -> None:
    """What a person may ask for."""
    if image_size is not None and not 1 <= image_size <= _MOST_SIDE:
        raise DataError(f"image_size must lie between 1 and {_MOST_SIDE}, got {image_size}: 32, 64 and 128 are usual")
    if channels not in (None, 1, 3):
        raise DataError(
            f"channels must be 1 (grey) or 3 (colour), got {channels}: leave it out to let the pictures say"
        )
    if fit not in ("crop", "stretch", "pad"):
        raise DataError(f"fit must be crop, stretch or pad, got {fit!r}: crop keeps the middle of a picture")
    if not 0 < test_share < 1:
        raise DataError(f"test_share must lie between 0 and 1, got {test_share}: 0.2 keeps a fifth for testing")
