"""Files that appear whole or not at all, and folders that one process uses at a time."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ._errors import UserError

LOCK = ".lock"


@contextmanager
def atomic(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    It is in the same folder, because a replace is atomic only within one file system. It gets the permissions of the
    user's umask, whatever the writer sets. It is locked while its process lives: what a killed process left of the same
    file is removed here, because nobody holds it. ``durable``: it is on the disk before it replaces the file, so that
    a power failure leaves the one or the other.
    """
    remove_halves(path)
    temporary, held = _locked_temporary(path)
    try:
        with held:
            mode = temporary.stat().st_mode
            yield temporary
            if durable:
                _to_disk(temporary)
            temporary.chmod(mode)
            if os.name == "nt":
                held.close()  # Windows replaces no file that is open, and locks none here
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_halves(path: Path) -> None:
    """Remove what killed processes left half written of this file. It can be as large as the file."""
    with suppress(OSError):  # a folder that cannot be listed or written to: the write itself says so
        for entry in os.scandir(path.parent):
            if entry.name.startswith(_beginning(path)) and entry.name.endswith(".tmp"):
                half = Path(entry)
                with suppress(OSError), half.open("ab") as left:
                    if _locked(left):
                        half.unlink()


_NUMBERS = itertools.count()  # threads of one process may write the same file


def _beginning(path: Path) -> str:
    """Of the names of its temporary files. A name has at most 255 bytes, and the letter of a name at most 4."""
    return f".{path.name[:50]}."


def _locked_temporary(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file that is locked. Between its making and its locking another writer may take it for a dead one's."""
    while True:
        temporary = path.with_name(f"{_beginning(path)}{os.getpid()}-{next(_NUMBERS)}.tmp")
        held = temporary.open("wb")
        if _locked(held) is not False and temporary.exists():
            return temporary, held
        held.close()


def _locked(handle: IO[bytes]) -> bool | None:
    """Lock an open file. False if somebody else has it, None if nobody can know."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows; a file system without locks
        return None
    return True


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def lock(folder: Path, *, patience: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Lock a folder, which is made if needed. ``shared``: with others that share it, and against those that do not.

    A second process that wants it gets a :class:`UserError` after ``patience`` seconds. The lock ends with the process,
    also when it is killed. The file ``.lock`` stays, and means nothing by itself.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK).open("a")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from error
    with handle:
        try:
            import fcntl
        except ImportError:  # Windows has no fcntl: there nothing is locked
            yield
            return
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() >= deadline:
                    raise UserError(
                        f"another process is at work in {folder}: wait until it ends, or choose another folder"
                    ) from None
                time.sleep(0.05)
            except OSError as error:  # a file system without locks, such as some network ones
                warnings.warn(f"{folder} cannot be locked ({error.strerror}): let one process work in it", stacklevel=3)
                break
        yield
