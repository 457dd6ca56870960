"""The command as a person starts it: a process and sockets."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest
from command_line import in_process
from fastapi.testclient import TestClient
from served import GOOD, Server, server_process

resource = pytest.importorskip("resource")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_answers_and_ends(digits_folder: Path, number: signal.Signals) -> None:
    with server_process(digits_folder) as server:
        assert server.ask("GET", "/health")[1]["status"] == "ok"
        status, told = server.ask("POST", "/predict", GOOD)
        assert status == 200
        assert told["answers"][0]["likeliest"] in "0123456789"
        assert server.ask("GET", "/health", host="evil.example")[0] == 421
        server.process.send_signal(number)
        out, err = server.process.communicate(timeout=60)
        assert (server.process.returncode, out, err) == (0, "stopped\n", "")


async def burst(server: Server, count: int) -> list[tuple[bytes, bytes]]:
    """Heads and bodies of the answers to ``count`` requests that are all under way before the first one ends."""
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(GOOD)}\r\n\r\n"
    gate = asyncio.Event()
    sent = 0

    async def one() -> tuple[bytes, bytes]:
        nonlocal sent
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head.encode() + GOOD[:-1])
        await writer.drain()
        sent += 1
        await gate.wait()
        writer.write(GOOD[-1:])
        told = await reader.read()
        writer.close()
        start, _, rest = told.partition(b"\r\n\r\n")
        return start, rest

    requests = [asyncio.create_task(one()) for _ in range(count)]
    while sent < count or "vmcr2_waiting_requests 50" not in server.ask("GET", "/metrics")[1]:
        await asyncio.sleep(0.05)
    gate.set()
    return await asyncio.gather(*requests)


def test_1000_requests_at_once(digits_folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with server_process(digits_folder, "--queue", "50") as server:
        told = asyncio.run(asyncio.wait_for(burst(server, 1000), 120))
        statuses = Counter(head.split()[1] for head, _ in told)
        assert set(statuses) == {b"200", b"503"}
        assert statuses[b"200"] >= 50
        assert statuses[b"503"] >= 500
        for head, body in told:
            if b" 503 " in head:
                assert b"retry-after: 1" in head
                assert body == b'{"error":"the server is busy, 50 requests are waiting: try again in a second"}'
        assert server.ask("POST", "/predict", GOOD)[0] == 200, "and it still answers"
        assert "vmcr2_waiting_requests 0" in server.ask("GET", "/metrics")[1]


def test_a_client_that_does_not_finish_is_cut_off(digits_folder: Path) -> None:
    with server_process(digits_folder, "--timeout", "0.5") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf a")
            told = b""
            while part := slow.recv(10_000):  # until the server closes the connection
                told += part
        assert told.startswith(b"HTTP/1.1 408 ")
        assert b"the request did not arrive within 0.5 s" in told
        gone = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        gone.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf a")
        gone.close()
        assert server.ask("POST", "/predict", GOOD)[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.communicate(timeout=60)[1] == "", "clients that go away are no errors"


def test_who_is_busy_sending_still_reads_why_not(digits_folder: Path) -> None:
    with server_process(digits_folder, "--max-mib", "0.5") as server:
        status, told = server.ask("POST", "/predict", bytes(20_000_000))
        assert (status, told["error"]) == (413, "a request may have 524288 bytes: send less at a time")


def test_mistakes_on_the_command_line(digits_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*args: str) -> str:
        done = in_process("serve", *args)
        assert done.code == 2
        assert done.err.startswith("vmcr2: ")
        assert done.err.count("\n") == 1
        return done.err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is taken by another program" in said(str(digits_folder), "--port", str(port))
    assert "is no address of this machine" in said(str(digits_folder), "--host", "no.such.host.invalid")
    assert "must be above 0" in said(str(digits_folder), "--timeout", "0")
    assert "false-alarm rate must lie between 0 and 1" in said(str(digits_folder), "--refuse", "2")
    assert str(tmp_path / "none") in said(str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith("vmcr2.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert "pip install 'vmcr2[serve]'" in said(str(digits_folder))


def test_other_machines_are_warned_about_and_hosts_are_known(
    digits_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vmcr2.serve

    apps = []
    monkeypatch.setattr(vmcr2.serve, "run_server", lambda app, listening, **_: apps.append(app) or listening.close())

    def started(*options: str) -> tuple[str, int]:
        """What it warns of, and its answer to somebody who calls it evil.example."""
        done = in_process("serve", str(digits_folder), "--port", "0", *options)
        assert done.code == 0
        with TestClient(apps.pop()) as client:
            return done.err, client.get("/health", headers={"host": "evil.example"}).status_code

    warned, status = started("--host", "0.0.0.0")
    assert "there is no password" in warned
    assert status == 200
    assert started() == ("", 421)
    assert started("--allow-host", "Evil.example") == ("", 200)
    assert started("--host", "0.0.0.0", "--allow-host", "good.example")[1] == 421
