"""Lists the files below a folder: pictures, other files, and links that lead elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from .._shared import listed
from ._errors import DataError
from ._natural import natural

_COMMON = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif"})
# .heic: iPhones write it and Pillow cannot read it; a person hears of every such file
_SUFFIXES = _COMMON | {".dib", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".ico", ".heic"}
_IGNORED = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx"})


class Found(NamedTuple):
    """A picture's file."""

    path: str
    """below the root, with slashes"""
    size: int
    mtime: int
    """in nanoseconds"""


class Walk:
    """Goes through a tree, and remembers what it leaves out: ``others`` are no pictures, ``links`` lead out of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.others: list[str] = []
        self.links: list[str] = []

    def below(self, folder: str) -> tuple[list[str], list[Found]]:
        """(folders, pictures) directly in a folder; paths are below the root. Folders come in natural order."""
        folders: list[str] = []
        pictures: list[Found] = []
        for entry in self._entries(folder):
            name = entry.name
            path = f"{folder}/{name}" if folder else name
            if name.startswith(".") or name.lower() in _IGNORED:
                continue
            if entry.is_symlink() and not self._inside(entry.path):
                self.links.append(path)
            elif entry.is_dir():
                folders.append(path)
            elif entry.is_file() and is_picture_name(name):
                status = entry.stat()
                pictures.append(Found(path, status.st_size, status.st_mtime_ns))
            else:
                self.others.append(path)
        return sorted(folders, key=natural), pictures

    def all_below(self, folder: str, above: frozenset[str] = frozenset()) -> list[Found]:
        """Pictures in a folder and in the folders in it. A link to a folder above itself is not followed."""
        real = os.path.realpath(self.root / folder)
        if real in above:
            self.links.append(folder)
            return []
        folders, pictures = self.below(folder)
        for inner in folders:
            pictures += self.all_below(inner, above | {real})
        return pictures

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        place = self.root / folder
        try:
            with os.scandir(place) as entries:
                return list(entries)
        except OSError as error:
            raise DataError(f"{place} cannot be read ({error.strerror}): change its permissions") from error

    def _inside(self, path: str) -> bool:
        """Whether a link leads to something that exists, below the root."""
        target = os.path.realpath(path)
        return os.path.exists(target) and target.startswith(str(self.root).rstrip(os.sep) + os.sep)


def is_picture_name(name: str) -> bool:
    """Whether a file's name ends as those of pictures do."""
    return name[name.rfind(".") :].lower() in _SUFFIXES


def shown(names: list[str], most: int = 5) -> str:
    """Names for a sentence; of many only the first.

    >>> shown(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return listed(map(_printed, names), most)


def _printed(name: str) -> str:
    """Bytes that are no UTF-8 cannot be printed, and control characters can rewrite what a terminal shows."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
