"""The order in which people expect names: numbers by their value, letters without regard to case."""

from __future__ import annotations

import re
import unicodedata

Key = tuple[tuple[str | int, ...], str]


def natural(name: str) -> Key:
    """A key to sort by. It depends on nothing but the name: not on the locale, not on the file system.

    >>> sorted(["10", "2", "b", "A", "img12.png", "img9.png"], key=natural)
    ['2', '10', 'A', 'b', 'img9.png', 'img12.png']
    """
    # text and digits alternate, text first, so that equal positions have equal types; ASCII digits alone are numbers
    pieces = re.split(r"([0-9]+)", unicodedata.normalize("NFC", name).casefold())
    # the name itself last: "02" and "2" are the same number, but never the same key
    return tuple(int(piece) if place % 2 else piece for place, piece in enumerate(pieces)), name


def natural_path(path: str) -> tuple[Key, ...]:
    """The same for a path with slashes, folder by folder.

    >>> sorted(["10/a", "2/b"], key=natural_path)
    ['2/b', '10/a']
    """
    return tuple(natural(part) for part in path.split("/"))
