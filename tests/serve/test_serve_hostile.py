"""Requests of somebody who means harm: each gets a 4xx, the server's memory stays where it was, and it goes on."""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import GOOD, Server, server_process

from vmcr2.runs import Run

MIB = 2**20
GROWTH = 200
"""MiB by which the server may grow: far below what each body would take if it were all unpacked."""
LENGTH = "Content-Length: {}\r\n"


def resident(server: Server) -> tuple[float, float]:
    """MiB in memory now, and at most so far."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    now, most = (re.search(rf"{name}:\s*(\d+)", text) for name in ("VmRSS", "VmHWM"))
    assert now
    assert most
    return int(now[1]) / 1024, int(most[1]) / 1024


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def pictures(digits_folder: Path) -> Iterator[Server]:
    with server_process(digits_folder, "--timeout", "5") as server:
        yield server


@pytest.fixture(scope="module")
def rows(wine_run: Run) -> Iterator[Server]:
    with server_process(wine_run.folder, "--timeout", "5", "--refuse", "0") as server:
        yield server


def told(server: Server, *parts: bytes) -> bytes:
    """What the server answers to bytes, until it closes or has sent a whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        try:
            for part in parts:
                client.sendall(part)
        except OSError:  # it has closed already: it may have said why
            pass
        return received(client)


def received(client: socket.socket) -> bytes:
    """The server's answer, until it closes or the answer is whole."""
    answer = b""
    try:
        while not (b"\r\n\r\n" in answer and answer.rstrip().endswith((b"}", b"received.", b"0"))):
            part = client.recv(65536)
            if not part:
                break
            answer += part
    except ConnectionResetError:
        pass
    return answer


def posted(body: bytes, kind: str, extra: str = "") -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n" + LENGTH.format(len(body)) + extra
    return head.encode() + b"\r\n" + body


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d+) ", answer)
    assert found, answer[:200]
    return int(found[1])


def form(*parts: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"--B\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + b"--B--\r\n"


FILE = b'Content-Disposition: form-data; name="file"; filename="a.png"'
FORM = "multipart/form-data; boundary=B"


def png_with_texts(megabytes: int) -> bytes:
    """A picture of 8×8 pixels with compressed comments that are large when unpacked."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    packed = zlib.compress(bytes(MIB))
    texts = b"".join(chunk(b"zTXt", b"k%d\0\0" % at + packed) for at in range(megabytes))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + texts + chunk(b"IDAT", zlib.compress(bytes(72))) + chunk(b"IEND", b"")


PICTURES: dict[str, tuple[bytes, str]] = {
    "a header of 20 MiB in a part": (form((FILE + b"\r\nX: " + b"a" * (20 * MIB), GOOD)), FORM),
    "a million headers in a part": (form((FILE + b"\r\n" + b"X: a\r\n" * MIB + b"Y: b", GOOD)), FORM),
    "50,000 fields": (form(*[(b'Content-Disposition: form-data; name="f"', b"x")] * 50_000), FORM),
    "50,000 files": (form(*[(FILE, b"x")] * 50_000), FORM),
    "a field of 20 MiB": (form((b'Content-Disposition: form-data; name="x"', bytes(20 * MIB))), FORM),
    "a file name of 20 MiB": (form((FILE[:-6] + b"a" * (20 * MIB) + b'"', GOOD)), FORM),
    "a form without an end": (b"--B\r\n" + FILE + b"\r\n\r\n" + GOOD, FORM),
    "a form without a boundary": (form((FILE, GOOD)), "multipart/form-data"),
    "a boundary of 5,000 letters": (form((FILE, GOOD)), "multipart/form-data; boundary=" + "x" * 5000),
    "only dashes": (b"-" * (20 * MIB), FORM),
    "almost boundaries": (b"--B\r\n" + FILE + b"\r\n\r\n" + b"\r\n--" * (5 * MIB), FORM),
    "a part without a name": (form((b"Content-Disposition: attachment", GOOD)), FORM),
    "comments that unpack to 200 MB": (png_with_texts(200), "image/png"),
    "a text": (b"I am a cat.\n" * 1000, "text/plain"),
    "JSON": (b"[1]", "application/json"),
    "nothing": (b"", "image/png"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(pictures: Server, name: str) -> None:
    before = resident(pictures)[0]
    answer = told(pictures, posted(*PICTURES[name]))
    assert 400 <= status(answer) < 500
    assert b'"error"' in answer
    assert resident(pictures)[1] - before < GROWTH
    assert pictures.ask("POST", "/predict", GOOD)[0] == 200


ROWS: dict[str, bytes] = {
    "5 million objects": b"[" + b"{}," * (5 * MIB) + b"{}]",
    "5 million lists": b"[" + b"[]," * (5 * MIB) + b"[]]",
    "5 million texts": b"[" + b'"a",' * (5 * MIB) + b"0]",
    "a row of a million columns": b"{" + b",".join(b'"%d":0' % at for at in range(MIB)) + b"}",
    "100,000 rows": json.dumps([[0.5] * 5] * 100_000).encode(),
    "20 million brackets": b"[" * (20 * MIB),
    "brackets below the limit of values": b"[" * 50_000,
    "a number of 20 million digits": b"[[" + b"9" * (20 * MIB) + b",1,1,1]]",
    "a fraction of 20 million digits": b"[[" + b"9" * (20 * MIB) + b".0,1,1,1]]",
    "NaN and Infinity": b'[{"alcohol": NaN, "ash": Infinity, "flavanoids": 1, "proline": -Infinity, "colour": "deep"}]',
    "half characters": b'["' + b"\\ud800" * MIB + b'"]',
    "zeros": bytes(MIB),
    "a compressed body": zlib.compress(bytes(10 * MIB)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(rows: Server, name: str) -> None:
    before = resident(rows)[0]
    extra = "Content-Encoding: deflate\r\n" if "compressed" in name else ""
    answer = told(rows, posted(ROWS[name], "application/json", extra))
    assert 400 <= status(answer) < 500
    assert b'"error"' in answer
    assert resident(rows)[1] - before < GROWTH
    row = {"alcohol": 13.2, "ash": 2.3, "flavanoids": 2.8, "proline": 1050, "colour": "deep"}
    assert rows.ask("POST", "/predict", json.dumps([row]).encode())[0] == 200


START = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
HEADS: dict[str, bytes] = {
    "200,000 headers": START + b"".join(b"X-%d: a\r\n" % at for at in range(200_000)) + b"\r\n",
    "a header of 20 MiB": START + b"X: " + b"a" * (20 * MIB) + b"\r\n\r\n",
    "a path of 20 MiB": b"GET /" + b"a" * (20 * MIB) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "10,000 options": b"POST /predict?" + b"a=1&" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a number of 50,000 digits": b"POST /predict?neighbors=" + b"9" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a negative length": START + b"Content-Length: -5\r\n\r\n",
    "two lengths": START + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
    "a chunk without a length": START + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a chunk's extension of 20 MiB": START + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * (20 * MIB),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01" * 1000 + b"\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "another host": b"GET /health HTTP/1.1\r\nHost: \xff\xff\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(pictures: Server, name: str) -> None:
    before = resident(pictures)[0]
    assert 400 <= status(told(pictures, HEADS[name])) < 500
    assert resident(pictures)[1] - before < GROWTH
    assert pictures.ask("GET", "/health")[0] == 200


def test_bodies_without_an_end(pictures: Server) -> None:
    """64 MiB in chunks, with no last one."""
    before = resident(pictures)[0]
    start = START + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = told(pictures, start, *[b"100000\r\n" + bytes(MIB) + b"\r\n"] * 64)
    assert status(answer) == 413
    said = START + b"Content-Length: 99999999999999999999\r\n\r\nx"
    assert status(told(pictures, said)) == 413
    assert resident(pictures)[1] - before < GROWTH


def test_headers_that_come_too_slowly(digits_folder: Path) -> None:
    """500 connections that never finish their headers are closed; more bytes give no more time."""

    async def slow(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHo")
        closed = asyncio.create_task(reader.read())
        while not closed.done():
            writer.write(b"s")
            await asyncio.wait([closed], timeout=0.2)
        writer.close()
        return closed.result() if closed.exception() is None else b""

    async def all_of_them(port: int) -> list[bytes]:
        return await asyncio.wait_for(asyncio.gather(*(slow(port) for _ in range(500))), 120)

    with server_process(digits_folder, "--timeout", "1") as server:
        assert set(asyncio.run(all_of_them(server.port))) == {b""}
        assert server.ask("POST", "/predict", GOOD)[0] == 200
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
            assert silent.recv(1) == b"", "who says nothing is cut off too"


def test_bodies_that_come_too_slowly(digits_folder: Path) -> None:
    """100 clients send a byte now and then: after the time for a request they are told so, and their room is free."""

    def slow(port: int) -> bytes:
        # no asyncio: if the server closes between two bytes, a stream forgets the answer that came before
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(START + b"Content-Length: 100000\r\n\r\n")
            try:
                while not select.select([client], [], [], 0.2)[0]:
                    client.sendall(b"x")
            except OSError:  # it has closed already: it has said why
                pass
            return received(client)

    with server_process(digits_folder, "--timeout", "1", "--queue", "60") as server:
        with ThreadPoolExecutor(100) as clients:
            statuses = [status(answer) for answer in clients.map(slow, [server.port] * 100)]
        assert set(statuses) == {408, 503}
        assert statuses.count(408) == 60
        assert server.ask("POST", "/predict", GOOD)[0] == 200
        assert "vmcr2_held_bytes 0" in server.ask("GET", "/metrics")[1]
