"""Opens regular files alone. A named pipe would make the reader wait for ever, and a device may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ._errors import DataError

# O_NONBLOCK: a path that becomes a named pipe between the look and the opening is not waited for
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def check_regular(path: Path) -> int:
    """The size of a file; an error that says why, if it cannot be read or is no regular file. Links are followed."""
    try:
        return _size(path, path.stat())
    except OSError as error:
        raise unreadable(path, error) from error


def open_regular(path: Path, *, most: int | None = None) -> BinaryIO:
    """The file, to be read in binary; of more than ``most`` bytes an error."""
    size = check_regular(path)  # before it is opened: opening a device can have effects
    try:
        handle = os.open(path, _FLAGS)
        stream = os.fdopen(handle, "rb")
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        size = _size(path, os.fstat(handle))
        if most is not None and size > most:
            raise DataError(f"{path} has {size} bytes, more than the {most} that such a file may have: fetch it again")
    except BaseException:
        stream.close()
        raise
    return stream


def unreadable(path: Path, error: OSError) -> DataError:
    """The sentence for a file that the system does not give."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing: fetch it again")
    return DataError(f"{path} cannot be read ({error.strerror or error}): change its permissions or fetch it again")


def _size(path: Path, status: os.stat_result) -> int:
    if stat.S_ISDIR(status.st_mode):
        raise DataError(f"{path} is a folder: name a file")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is no regular file but a {_kind(status.st_mode)}: copy its content into a file")
    return status.st_size


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "named pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"
