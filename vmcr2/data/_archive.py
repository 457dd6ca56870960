"""Reads files out of a .tar.gz whose maker may be careless or hostile. Nothing is written to disk.

Python's tarfile believes what headers say: a header of 3 GiB is read into memory, and thousands of headers in a row end
in a recursion. So it reads through a stream that knows how many bytes are due, and stops at the first one more. The
gzip stream is read to its end, where its CRC and its length are: a flipped bit is noticed wherever it is.
"""

from __future__ import annotations

import gzip
import posixpath
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ._errors import DataError
from ._files import MOST_BYTES
from ._regular import open_regular

MOST_UNPACKED = 1 << 29
"""Of a whole archive. CIFAR's have 186 MB."""
MOST_MEMBERS = 256
"""CIFAR's have 9."""
MOST_HEADERS = 1 << 14
"""Bytes of headers before one member. A usual one has 512, or 1536 with times in fractions of seconds."""
_BLOCK = 1 << 20
_BUFFER = 20 * 512  # what tarfile asks for at once


class _Due:
    """A stream to read from as far as something is due; tarfile never asks for more at once than its buffer."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._done = 0
        self.due = MOST_HEADERS + _BUFFER

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._done += len(data)
        if self._done > MOST_UNPACKED:
            raise DataError(
                f"{self._path} unpacks to more than 512 MiB, which none of the known archives does: fetch it again"
            )
        if self._done > self.due:
            raise DataError(
                f"{self._path} has more than {MOST_HEADERS // 1024} KiB of headers before one file: fetch it again"
            )
        return data

    def read_rest(self) -> None:
        """To the end, where gzip compares CRC and length."""
        self.due = MOST_UNPACKED
        while self.read(_BLOCK):
            pass


@contextmanager
def _unpacked(path: Path) -> Iterator[_Due]:
    """The tar stream inside, with one kind of error."""
    with open_regular(path, most=MOST_UNPACKED) as raw:
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield _Due(stream, path)
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a whole .tar.gz ({error}): fetch it again") from error
        except DataError:
            raise
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:  # of tarfile, on numbers in headers
            raise DataError(f"{path} is not a whole .tar.gz (a header is damaged): fetch it again") from error


def _members(due: _Due, path: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with tarfile.open(fileobj=due, mode="r|", bufsize=_BUFFER) as archive:  # type: ignore[call-overload]
        for _ in range(MOST_MEMBERS + 1):
            # offset: where the next header begins
            due.due = archive.offset + MOST_HEADERS + _BUFFER
            member = archive.next()
            archive.members = []  # it keeps all that it has seen
            if member is None:
                return
            due.due = archive.offset + MOST_HEADERS + _BUFFER
            yield archive, member
    raise DataError(f"{path} has more than {MOST_MEMBERS} files, which none of the known archives has: fetch it again")


@dataclass(frozen=True)
class Archive:
    """Files under one top folder of a .tar.gz. Nothing is written to disk, so a member's path does no harm."""

    path: Path
    top: str

    def label(self, name: str) -> str:
        """The name of a file in an error."""
        return f"{self.path}:{self.top}/{name}"

    def read(self, names: Sequence[str], *, whole: bool = True) -> list[bytes]:
        """The members' contents, in the order of the names; one pass. ``whole``: to the archive's end and its CRC."""
        missing = {f"{self.top}/{name}": name for name in names}
        found: dict[str, bytes] = {}
        with _unpacked(self.path) as due:
            for archive, member in _members(due, self.path):
                name = missing.pop(posixpath.normpath(member.name), None)
                if name is not None:
                    room = MOST_BYTES - sum(map(len, found.values()))
                    found[name] = self._content(archive, member, name, room)
                if not missing:
                    break
            if whole:
                due.read_rest()
        if missing:
            raise DataError(f"{next(iter(missing))} is missing from {self.path}: fetch the archive again")
        return [found[name] for name in names]

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, room: int) -> bytes:
        # a link would be followed to another member, and a sparse file is as large as it says: none is published
        plain = member.isreg() and not member.issparse()
        stream = archive.extractfile(member) if plain and 0 <= member.size <= room else None
        if stream is None:
            raise DataError(f"{self.label(name)} is not a plain file, or is too large: fetch the archive again")
        content = stream.read()
        if len(content) != member.size:
            raise DataError(f"{self.label(name)} ends too early: fetch the archive again")
        return content


def top_folder(path: Path) -> str:
    """The first folder in a .tar.gz, which tells its layout."""
    with _unpacked(path) as due:
        for _, member in _members(due, path):
            return posixpath.normpath(member.name).split("/")[0]
    return ""
