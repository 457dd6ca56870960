"""Kills its own process at a chosen moment of writing. Python imports it at its start, if its folder is on PYTHONPATH.

A moment is a write into a file under VMCR2_KILL_UNDER (half of it is written), or the time before or after a file there
is replaced, linked, removed or brought to the disk. VMCR2_KILL_AT is the moment's number; VMCR2_KILL_LOG gets a line
for each moment. Of several ranks it is the first, which writes.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable
from typing import Any


class _Moments:
    def __init__(self, under: str, at: int, log: str) -> None:
        self.under, self.at, self.log, self.count = under, at, log, 0

    def concerns(self, path: Any) -> bool:
        """Whether it is one of the files that are watched."""
        try:
            return os.fsdecode(os.path.abspath(path)).startswith(self.under)
        except TypeError:  # the number of an open file
            return False

    def come(self, what: str) -> bool:
        """Count a moment. Returns whether it is the one."""
        self.count += 1
        if self.log:
            with _open(self.log, "a") as lines:
                lines.write(f"{what}\n")
        return self.count == self.at

    def pass_by(self, what: str) -> None:
        if self.come(what):
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # until it comes


class _Watched:
    """A file that is written to; one of its writes may be the last."""

    def __init__(self, file: Any, moments: _Moments) -> None:
        self._file, self._moments = file, moments

    def write(self, data: Any) -> Any:
        if self._moments.come("write"):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            die()
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Watched:
        self._file.__enter__()
        return self

    def __exit__(self, *given: Any) -> Any:
        return self._file.__exit__(*given)

    def __iter__(self) -> Any:
        return iter(self._file)


_open = io.open


def install() -> None:
    """Watch this process, if the environment asks for it."""
    under = os.environ.get("VMCR2_KILL_UNDER", "")
    if not under or os.environ.get("RANK", "0") != "0":
        return
    moments = _Moments(under, int(os.environ.get("VMCR2_KILL_AT", "0")), os.environ.get("VMCR2_KILL_LOG", ""))

    def opened(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        file = _open(path, mode, *given, **named)
        return _Watched(file, moments) if set(mode) & set("wax+") and moments.concerns(path) else file

    def around(name: str) -> None:
        own: Callable[..., Any] = getattr(os, name)

        def call(path: Any, *given: Any, **named: Any) -> Any:
            watched = moments.concerns(given[0] if name in ("replace", "link") else path) or "dir_fd" in named
            if watched:
                moments.pass_by(f"before {name}")
            found = own(path, *given, **named)
            if watched:
                moments.pass_by(f"after {name}")
            return found

        setattr(os, name, call)

    builtins.open = io.open = opened  # type: ignore[assignment]
    for name in ("replace", "link", "unlink", "remove", "mkdir"):
        around(name)
    sync = os.fsync

    def fsync(handle: int) -> None:
        watched = moments.concerns(os.readlink(f"/proc/self/fd/{handle}"))
        if watched:
            moments.pass_by("before fsync")
        sync(handle)
        if watched:
            moments.pass_by("after fsync")

    os.fsync = fsync  # type: ignore[assignment]


install()
