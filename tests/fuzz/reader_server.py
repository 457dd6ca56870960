"""Requests to the server: address, headers and body, for a run of pictures and for one of a table."""

from __future__ import annotations

import functools
import io
import json
import tempfile
from pathlib import Path
from urllib.parse import quote

from drawn_runs import drawn_run
from fastapi.testclient import TestClient
from PIL import Image

from vmcr2.data import Preparation, from_table
from vmcr2.serve import create_app

from .pieces import joined, taken_apart

_REFUSALS = {400, 404, 405, 408, 411, 413, 415, 421, 422, 431, 503}
_METHODS = ("POST", "GET", "PUT", "HEAD", "OPTIONS")
_FORM = (
    b"--b\r\nContent-Disposition: form-data; name=file; filename=x.png\r\nContent-Type: image/png\r\n\r\n"
    b"%s\r\n--b--\r\n"
)


class RefusedError(Exception):
    """The server said no, as its documentation says."""


DOCUMENTED = (RefusedError,)


@functools.cache
def _clients() -> tuple[TestClient, TestClient]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-serve-"))
    rows = "".join(f"{n},{'red' if n % 2 else 'blue'},{n % 4}\n" for n in range(40))
    (folder / "x.csv").write_text("size,colour,label\n" + rows)
    source = from_table(folder / "x.csv")
    preparation = Preparation.from_json_dict(dict(source.preparation or {}))
    table = drawn_run(folder, source.sample_shape, preparation=preparation, model="mlp")
    pictures = drawn_run(folder, (1, 8, 8), model="mlp")
    clients = tuple(TestClient(create_app(run)) for run in (pictures, table))
    for client in clients:
        client.__enter__()  # starts the batching; it ends with the process
    return clients  # type: ignore[return-value]


def seeds() -> list[bytes]:
    stream = io.BytesIO()
    Image.new("L", (8, 8), 99).save(stream, "PNG")
    picture = stream.getvalue()
    row = json.dumps([{"size": 3, "colour": "red"}]).encode()
    return [
        joined(0, b"POST /predict", b"Content-Type: image/png", picture),
        joined(
            0,
            b"POST /predict?refuse=0.1&neighbors=0",
            b"Content-Type: multipart/form-data; boundary=b",
            _FORM % picture,
        ),
        joined(1, b"POST /predict", b"Content-Type: application/json", row),
        joined(
            1, b"POST /predict?refuse=0.05", b"Content-Type: application/json\nX-A: b", b'{"size": 1, "colour": null}'
        ),
        joined(0, b"GET /health", b"Accept: */*", b""),
    ]


def run(data: bytes, folder: Path) -> None:
    choice, (line, headers, *body) = taken_apart(data, 3)
    method, _, address = line.partition(b" ")
    word = method.decode("ascii", "replace")
    given: list[tuple[bytes, bytes]] = []
    for header in headers.split(b"\n")[:20]:
        name, _, value = header.partition(b":")
        if name.isascii() and name.replace(b"-", b"").isalnum() and name.lower() != b"host":
            given.append((name, value.strip().replace(b"\r", b"").replace(b"\0", b"")))
    path = "/" + quote(address[:1000].lstrip(b"/"), safe="/?&=%+.,:;@~-_[]")
    client = _clients()[choice % 2]
    answer = client.request(word if word in _METHODS else "POST", path, headers=given, content=b"--8<--".join(body))
    if answer.status_code in _REFUSALS:
        raise RefusedError(answer.status_code)
    if answer.status_code != 200:
        raise AssertionError(f"{line!r} is answered {answer.status_code}: {answer.text[:300]}")
