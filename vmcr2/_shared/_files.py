"""Files that appear whole or not at all, and folders that one process uses at a time."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._errors import UserError

LOCK = ".lock"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    It is in the same folder, because a replace is atomic only within one file system. It gets the permissions of the
    user's umask, whatever the writer sets (safetensors: 0600).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


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
