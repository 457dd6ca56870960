"""NVIDIA's Multi-Process Service during a sweep: without it, processes on one GPU take turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 15


@contextmanager
def multi_process_service() -> Iterator[str]:
    """Start the service if none runs, and end it on exit. Yields a sentence that says how the GPU is shared.

    Enter it before any process that will use it touches the GPU: the processes inherit its address.
    """
    if shutil.which(CONTROL) is None:
        yield f"without MPS, processes on one GPU take turns ({CONTROL} is not on PATH): --parallel 1 may be as fast"
        return
    if _control("get_server_list") == 0:
        yield "the processes share the GPU through the MPS daemon that already runs"
        return
    folder = Path(tempfile.mkdtemp(prefix="vmcr2-mps-", dir=_short_place()))
    named = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
    before = {name: os.environ.get(name) for name in named}
    for place in named.values():
        Path(place).mkdir()
    os.environ.update(named)
    try:
        code = _control(None)
        if code == 0:
            yield "the processes share the GPU through MPS"
        else:
            for name, value in before.items():
                _restore(name, value)
            yield f"without MPS, processes on one GPU take turns ({CONTROL} -d ended with {code})"
    finally:
        if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") == named["CUDA_MPS_PIPE_DIRECTORY"]:
            _control("quit")
        for name, value in before.items():
            _restore(name, value)
        shutil.rmtree(folder, ignore_errors=True)


def _short_place() -> str:
    """Where temporary files go, unless that path is too long for the name of a socket (108 bytes on Linux)."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= 60 else "/tmp"


def _control(command: str | None) -> int:
    """Start the daemon, or send it a command. Returns the exit code, or −1 if it did not answer."""
    arguments = [CONTROL, "-d"] if command is None else [CONTROL]
    with suppress(OSError, subprocess.SubprocessError):
        # to DEVNULL, not to a pipe: the daemon keeps a pipe open, and reading it to its end would wait for ever
        return subprocess.run(
            arguments,
            input=None if command is None else f"{command}\n",
            stdin=subprocess.DEVNULL if command is None else None,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
            check=False,
        ).returncode
    return -1


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
