"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of ``path`` once the block has ended well.

    In the same folder, because a replace is atomic within one file system only; with the permissions of the user's
    umask, whatever the writer leaves (safetensors: 0600).
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
