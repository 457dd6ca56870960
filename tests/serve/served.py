"""Servers to ask, and what to ask them."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from vmcr2.data import open_data
from vmcr2.serve import bound

ROOT = Path(__file__).parent.parent.parent
TEST = open_data("digits").test()


def png_of(picture: Tensor) -> bytes:
    """Of uint8 (1, height, width)."""
    return encoded(Image.fromarray(picture[0].numpy()))


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    written = io.BytesIO()
    picture.save(written, kind, **options)
    return written.getvalue()


GOOD = png_of(TEST.images[0])


def form_of(*files: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("file", file) for file in files]


class Server(NamedTuple):
    port: int
    process: subprocess.Popen[str]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text


@contextlib.contextmanager
def server_process(run: Path, *options: str) -> Iterator[Server]:
    """`vmcr2 serve` on a free port, as a person starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vmcr2", "serve", str(run), "--port", "0", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"{line}{process.communicate()[1]}"
        yield Server(int(found[1]), process)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def server_thread(app: Any) -> Iterator[int]:
    """The port of an application that is served in this process."""
    import uvicorn

    listening = bound("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]  # it listens already: who asks too early waits
    finally:
        server.should_exit = True
        thread.join()
