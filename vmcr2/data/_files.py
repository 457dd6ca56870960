"""Reads bytes from a folder or a .gz, with errors that name the file."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import DataError
from ._regular import open_regular, unreadable

MOST_BYTES = 1 << 28
"""Of what is read at once, unpacked. The largest known file, CIFAR-100's train, has 155 MB: what claims to be far
larger is none of them, and must not fill the memory."""
_BLOCK = 1 << 20


def read_bytes(path: Path) -> bytes:
    """A whole file."""
    with open_regular(path, most=MOST_BYTES) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise unreadable(path, error) from error


def read_gzip(path: Path) -> bytes:
    """A whole .gz file, unpacked. Its end has been read, so its CRC and its length are right."""
    data = bytearray()
    with open_regular(path, most=MOST_BYTES) as raw:
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                while block := stream.read(_BLOCK):
                    data += block
                    if len(data) > MOST_BYTES:
                        raise DataError(
                            f"{path} unpacks to more than 256 MiB, which none of the known files does: fetch it again"
                        )
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a whole gzip file ({error}): fetch it again") from error
    return bytes(data)


def md5(path: Path) -> str:
    """The kind of checksum that is published. It detects accidents, not attacks."""
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(path) as stream:
        try:
            while block := stream.read(_BLOCK):
                digest.update(block)
        except OSError as error:
            raise unreadable(path, error) from error
    return digest.hexdigest()


@dataclass(frozen=True)
class Folder:
    """Files in a folder."""

    path: Path

    def label(self, name: str) -> str:
        """The name of a file in an error."""
        return str(self.path / name)

    def read(self, names: Sequence[str], *, whole: bool = True) -> list[bytes]:
        """The files' contents, in the order of the names. ``whole`` is for archives: a folder has no end to check."""
        return [read_bytes(self.path / name) for name in names]
