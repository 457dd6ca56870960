"""Runs an application under uvicorn: a socket of its own, clean ends, sentences for what can go wrong."""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import warnings
from typing import Any

import uvicorn

from .._shared import UserError
from ._protocol import HEADER_BYTES, patient_protocol

_BACKLOG = 2048


def is_local(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UserError(f"--host {host} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for all") from None
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise UserError(_cannot_listen(host, port, error)) from None
    return opened


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken by another program: use another --port, or --port 0 for any free one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"you may not listen on port {port}: use a --port above 1023"
    return f"cannot listen on {host}, port {port}: {error.strerror}; use another --host or --port"


def run_server(app: Any, listening: socket.socket, *, seconds: float, log: bool) -> None:
    """Until Ctrl-C or SIGTERM. Requests that are under way get their answers, for at most ``seconds``."""
    _allow_many_connections()
    warnings.filterwarnings("ignore", module="PIL")  # about clients' pictures: what matters is in the answer
    config = uvicorn.Config(
        app,
        ws="none",
        http=patient_protocol(seconds),
        h11_max_incomplete_event_size=HEADER_BYTES,
        lifespan="on",
        backlog=_BACKLOG,
        access_log=log,
        log_level="info" if log else "warning",
        server_header=False,
        timeout_graceful_shutdown=max(1, round(seconds)),
    )
    # uvicorn catches both, ends, and sends them again to whoever had them before: that is this
    before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listening.close()


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _allow_many_connections() -> None:
    """Many systems allow a process 1,024 open files, and every connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
