"""`vmcr2 serve`. FastAPI and uvicorn are imported only here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..runs import UserError, load_run

_MISSING = "vmcr2 serve needs FastAPI, uvicorn and python-multipart: pip install 'vmcr2[serve]'"


def serve(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is every network of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    refuse: Annotated[
        float | None,
        typer.Option(help="Refuse what is foreign, at this false-alarm rate; 0 refuses nothing; 0.05 by default."),
    ] = None,
    max_mib: Annotated[float, typer.Option(help="Most MiB of one request.")] = 32,
    max_samples: Annotated[int, typer.Option(min=1, help="Most pictures or rows of one request.")] = 100,
    max_pixels: Annotated[int, typer.Option(min=1, help="Most pixels of one picture.")] = 25_000_000,
    timeout: Annotated[float, typer.Option(help="Seconds for a request to arrive, and for its answer.")] = 30,
    queue: Annotated[int, typer.Option(min=1, help="Most requests at one time; others are told to come again.")] = 256,
    batch: Annotated[int, typer.Option(min=1, help="Most samples that go through the network together.")] = 64,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name that clients know this server by; repeatable."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Print a line for every request.")] = False,
) -> None:
    """Answer requests over HTTP: pictures or rows in, JSON out, and a page to try it.

    \b
    vmcr2 serve runs/mine
    curl -F file=@cat.png http://127.0.0.1:8000/predict
    """
    try:
        from ..serve import Limits, bound, create_app, is_local, run_server
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("vmcr2"):
            raise
        raise UserError(_MISSING) from error
    if timeout <= 0 or max_mib <= 0:
        raise UserError("--timeout and --max-mib must be above 0")
    limits = Limits(
        bytes=round(max_mib * 2**20),
        samples=max_samples,
        pixels=max_pixels,
        seconds=timeout,
        waiting=queue,
        batch=batch,
    )
    names = {"localhost", "127.0.0.1", "::1", host, *(allow_host or [])}
    app = create_app(
        load_run(run, device=device),
        limits=limits,
        refuse=refuse,
        hosts={name.lower() for name in names} if is_local(host) or allow_host else None,
    )
    listening = bound(host, port)
    if not is_local(host):
        _warn(f"{host} can be reached from other machines, and there is no password: put a proxy in front of it")
    for note in app.state.service.writer.notes:
        _warn(note)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"serving {run} at http://{shown}:{listening.getsockname()[1]} (Ctrl-C ends it)")
    sys.stdout.flush()
    run_server(app, listening, seconds=timeout, log=log)
    typer.echo("stopped")


def _warn(text: str) -> None:
    print(f"vmcr2: {text}", file=sys.stderr)
