"""Reads bytes from a folder or a .tar.gz, with errors that name the file."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ._errors import DataError

# The largest raw file known is CIFAR-100's train (155 MB): a file that claims to be far larger is not one of
# them, and must not fill the memory.
_MAX_MEMBER = 1 << 30


def read_bytes(path: Path) -> bytes:
    """A whole file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing: fetch it again") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}): change its permissions or fetch it again"
        ) from error


def read_gzip(path: Path) -> bytes:
    """A whole .gz file, unpacked."""
    try:
        with gzip.open(path) as stream:
            data = stream.read(_MAX_MEMBER + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): fetch it again") from error
    if len(data) > _MAX_MEMBER:
        raise DataError(f"{path} unpacks to more than 1 GiB, which none of the known files does: fetch it again")
    return data


def md5(path: Path) -> str:
    """The kind of checksum that is published. It detects accidents, not attacks."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): change its permissions") from error
    return digest.hexdigest()


@dataclass(frozen=True)
class Folder:
    """Files in a folder."""

    path: Path

    def label(self, name: str) -> str:
        """The name of a file in an error."""
        return str(self.path / name)

    def read(self, names: Sequence[str]) -> list[bytes]:
        """The files' contents, in the order of the names."""
        return [read_bytes(self.path / name) for name in names]


@dataclass(frozen=True)
class Archive:
    """Files under one top folder of a .tar.gz. Nothing is written to disk, so a member's path does no harm."""

    path: Path
    top: str

    def label(self, name: str) -> str:
        """The name of a file in an error."""
        return f"{self.path}:{self.top}/{name}"

    def read(self, names: Sequence[str]) -> list[bytes]:
        """The members' contents, in the order of the names; one pass, which ends when all are found."""
        missing = {f"{self.top}/{name}": name for name in names}
        found: dict[str, bytes] = {}
        try:
            with tarfile.open(self.path, "r|gz") as archive:
                for member in archive:
                    name = missing.pop(posixpath.normpath(member.name), None)
                    if name is None:
                        continue
                    found[name] = self._content(archive, member, name)
                    if not missing:
                        break
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path} is not a whole .tar.gz ({error}): fetch it again") from error
        if missing:
            raise DataError(f"{next(iter(missing))} is missing from {self.path}: fetch the archive again")
        return [found[name] for name in names]

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> bytes:
        # isreg: a link would be followed to another member, and the published archives have no links
        stream = archive.extractfile(member) if member.isreg() and member.size <= _MAX_MEMBER else None
        if stream is None:
            raise DataError(f"{self.label(name)} is not a plain file, or is too large: fetch the archive again")
        return stream.read()


def top_folder(path: Path) -> str:
    """The first folder in a .tar.gz, which tells its layout."""
    try:
        with tarfile.open(path, "r|gz") as archive:
            first = archive.next()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole .tar.gz ({error}): fetch it again") from error
    return "" if first is None else posixpath.normpath(first.name).split("/")[0]
