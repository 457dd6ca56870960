"""How many requests does `vmcr2 serve` answer, and how long does the slowest of a hundred wait?

Trains a small run on pictures (once), starts the server, and sends single pictures (PNG) from another process: 1, 16
and 64 clients that each wait for their answer before they send the next picture, and 1,000 requests at the same moment.
The same with batching off (``--batch 1``), in turn, round after round; of the rounds, the median by rate. "CPU" is the
server's processor time for each answer: other programs on the machine disturb it less than the rates. Two networks:
scikit-learn's digits (8×8, an MLP), where most of the time is HTTP, and a ResNet-18 on 32×32, where most of it is the
network. The clients share the machine with the server.

With ``--bursts N`` something else: does the server grow? N times 1,000 requests at the same moment, to a queue that has
room for all of them, and its memory after each.

Run:    .venv/bin/python benchmarks/serve_load.py --json benchmarks/results/serve-cpu.json
        .venv/bin/python benchmarks/serve_load.py --bursts 30 --json benchmarks/results/serve-memory-cpu.json
On:     any CPU; about five minutes on 2 cores, and one minute
Result: benchmarks/results/serve-cpu.json, and the table in docs/serving.md, which it writes too;
        benchmarks/results/serve-memory-cpu.json, and docs/reliability.md
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS = (1, 16, 64)
BATCHES = (64, 1)
DOCS = Path(__file__).parent.parent / "docs/serving.md"
START, END = "<!-- serve-cpu: written by benchmarks/serve_load.py -->", "<!-- end of serve-cpu -->"
BURST = 1000


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0, help="of every measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bursts", type=int, help="only measure the memory after so many times 1,000 requests")
    asked = parser.parse_args()
    if asked.bursts:
        measure_memory(asked.bursts, asked.json)
        return
    found = machine() | {"seconds": asked.seconds, "rounds": asked.rounds, "results": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("digits", "resnet18"):
            run, picture = trained(name, Path(folder))
            for own in measured(run, picture, asked.seconds, asked.rounds):
                found["results"].append({"run": name, "bytes": len(picture)} | own)
                print(json.dumps(found["results"][-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
        write_table(found)


def measure_memory(bursts: int, out: Path | None) -> None:
    """Of a server under bursts of 1,000 requests."""
    found = machine() | {"requests_per_burst": BURST, "results": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("digits", "resnet18"):
            run, picture = trained(name, Path(folder))
            found["results"].append({"run": name} | grown(run, picture, bursts))
            print(json.dumps(found["results"][-1]), flush=True)
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")


def grown(run: Path, picture: bytes, bursts: int) -> dict[str, Any]:
    """Memory before the first burst and after each, and what all requests were answered with."""
    with (
        server(run, BATCHES[0], "--queue", str(BURST), "--timeout", "120") as own,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
    ):
        sizes, statuses = [memory_mib(own.process)], Counter[str]()
        start = time.perf_counter()
        for _ in range(bursts):
            statuses.update(elsewhere.submit(at_once, own.port, picture).result()["statuses"])
            sizes.append(memory_mib(own.process))
        return {
            "resident_mib": sizes,
            "peak_mib": memory_mib(own.process, "VmHWM"),
            "threads": int(re.search(r"Threads:\s*(\d+)", status_of(own.process))[1]),  # type: ignore[index]
            "open_files": len(list(Path(f"/proc/{own.process}/fd").iterdir())),
            "statuses": dict(statuses),
            "took_s": round(time.perf_counter() - start, 1),
        }


def write_table(found: dict[str, Any]) -> None:
    """Into the page of documents, between its marks."""
    before, _, rest = DOCS.read_text().partition(START)
    DOCS.write_text(f"{before}{START}\n{table(found)}\n{END}{rest.partition(END)[2]}")


def table(found: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, load average before the start "
        f"{found['load_before']:.1f}, torch {found['torch']}, Python {found['python']}, FastAPI {found['fastapi']}, "
        f"uvicorn {found['uvicorn']}. The clients ran on the same cores.",
        "",
        "| run | clients | batching | answers per s | p50, ms | p99, ms | CPU ms per request | statuses | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = {"digits": "digits, MLP, 8×8", "resnet18": "ResNet-18, 32×32"}
    results = found["results"]
    for run, name in names.items():
        own = [result for result in results if result["run"] == run]
        for rows in zip(*(result["rows"] for result in own), strict=True):
            for result, row in zip(own, rows, strict=True):
                statuses = ", ".join(f"{count} × {status}" for status, count in row["statuses"].items())
                lines.append(
                    f"| {name} | {'1,000 at once' if row['clients'] == 'burst' else row['clients']} | "
                    f"{'off' if result['batch'] == 1 else 'on'} | {row['per_second']:.0f} | {row['p50_ms']:.0f} | "
                    f"{row['p99_ms']:.0f} | {row['cpu_ms']:.1f} | {statuses} | {result['peak_mib']:.0f} |"
                )
    gains = ", ".join(f"{gain(results, run):.1f} times as many on the {run} run" for run in names)
    lines += [
        "",
        f"With 64 clients, batching answers {gains}. With one client there is nothing to batch: differences there are "
        "the noise of a shared machine.",
    ]
    return "\n".join(lines)


def gain(results: list[dict[str, Any]], run: str) -> float:
    """The rate with batching over the rate without, at the most clients."""
    rates = {
        result["batch"]: row["per_second"]
        for result in results
        for row in result["rows"]
        if (result["run"], row["clients"]) == (run, str(CLIENTS[-1]))
    }
    return float(rates[BATCHES[0]] / rates[BATCHES[1]])


def machine() -> dict[str, Any]:
    """Where this was measured."""
    import fastapi
    import torch
    import uvicorn

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fastapi": fastapi.__version__,
        "uvicorn": uvicorn.__version__,
    }


def trained(name: str, folder: Path) -> tuple[Path, bytes]:
    """A run's folder, and a picture for it. What the run has learned does not matter here."""
    import numpy as np
    from PIL import Image

    import vmcr2
    from vmcr2.data import from_arrays

    rng = np.random.default_rng(0)
    if name == "digits":
        vmcr2.fit(vmcr2.recipe("digits", objective="mcr2", epochs=30, device="cpu"), out=folder / name)
        pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
    else:
        pictures = rng.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
        source = from_arrays(pictures, np.arange(400) % 10)
        few = {"epochs": 1, "batch_size": 100, "device": "cpu", "model": "resnet18"}
        vmcr2.fit(vmcr2.recipe("auto", data=source, **few), out=folder / name, source=source)
        pixels = pictures[0]
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return folder / name, written.getvalue()


def measured(run: Path, picture: bytes, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Figures of two servers, with batching and without."""
    with (
        server(run, BATCHES[0]) as one,
        server(run, BATCHES[1]) as two,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere,
    ):

        def load(own: Server, clients: int, length: float) -> dict[str, Any]:
            before = cpu_seconds(own.process)
            asking = elsewhere.submit(steady, own.port, picture, clients, length) if clients else None
            row = (asking or elsewhere.submit(at_once, own.port, picture)).result()
            return row | {
                "cpu_ms": round(1000 * (cpu_seconds(own.process) - before) / sum(row["statuses"].values()), 3)
            }

        servers = dict(zip(BATCHES, (one, two), strict=True))
        for own in servers.values():
            load(own, 4, 1.0)  # warm
        rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for _ in range(rounds):
            for clients in (*CLIENTS, 0):
                for batch, own in servers.items():
                    rows.setdefault((batch, clients), []).append(load(own, clients, seconds))
        return [
            {
                "batch": batch,
                "rows": [middle(rows[batch, clients]) for clients in (*CLIENTS, 0)],
                "peak_mib": memory_mib(own.process, "VmHWM"),
            }
            for batch, own in servers.items()
        ]


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The round with the median rate."""
    return sorted(rounds, key=lambda row: float(row["per_second"]))[len(rounds) // 2]


class Server(NamedTuple):
    """A server that runs."""

    port: int
    process: int


@contextlib.contextmanager
def server(run: Path, batch: int, *options: str) -> Iterator[Server]:
    """`vmcr2 serve` with the settings that everybody gets, but for the batch and these options."""
    command = [sys.executable, "-m", "vmcr2", "serve", str(run), "--port", "0", "--batch", str(batch), *options]
    with subprocess.Popen([*command, "--device", "cpu"], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            found = re.search(r":(\d+) ", line)
            if not found:
                raise RuntimeError(f"the server did not start: {line}")
            yield Server(int(found[1]), process.pid)
        finally:
            process.terminate()


def status_of(process: int) -> str:
    """What Linux tells of it."""
    return Path(f"/proc/{process}/status").read_text()


def memory_mib(process: int, what: str = "VmRSS") -> float:
    """Of a process now; VmHWM: at most so far."""
    found = re.search(rf"{what}:\s*(\d+) kB", status_of(process))
    return round(int(found[1]) / 1024, 1) if found else float("nan")


def cpu_seconds(process: int) -> float:
    """That it has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request_of(picture: bytes) -> bytes:
    """Over sockets, by hand: a client library would take as long as the server."""
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(picture)}\r\n\r\n"
    return head.encode() + picture


async def answer(reader: asyncio.StreamReader) -> int:
    """The status of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head[9:12])


def steady(port: int, picture: bytes, clients: int, seconds: float) -> dict[str, Any]:
    """Clients that wait for their answer before they ask again, on connections that stay open."""

    async def one(until: float, times: list[tuple[int, float]]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.perf_counter()) < until:
            writer.write(request_of(picture))
            times.append((await answer(reader), time.perf_counter() - start))
        writer.close()

    async def all_of_them() -> tuple[list[tuple[int, float]], float]:
        times: list[tuple[int, float]] = []
        start = time.perf_counter()
        await asyncio.gather(*(one(start + seconds, times) for _ in range(clients)))
        return times, time.perf_counter() - start

    return figures(f"{clients}", *asyncio.run(all_of_them()))


def at_once(port: int, picture: bytes) -> dict[str, Any]:
    """All connections are open; then all requests are sent at one moment."""

    async def one(go: asyncio.Event) -> tuple[int, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await go.wait()
        start = time.perf_counter()
        writer.write(request_of(picture))
        status = await answer(reader)
        writer.close()
        return status, time.perf_counter() - start

    async def all_of_them() -> tuple[list[tuple[int, float]], float]:
        go = asyncio.Event()
        requests = [asyncio.create_task(one(go)) for _ in range(BURST)]
        await asyncio.sleep(2.0)  # until they are connected
        go.set()
        start = time.perf_counter()
        return await asyncio.gather(*requests), time.perf_counter() - start

    return figures("burst", *asyncio.run(all_of_them()))


def figures(clients: str, times: list[tuple[int, float]], took: float) -> dict[str, Any]:
    """Of answers with a class: rate and milliseconds. Of all: how many had which status."""
    good = sorted(1000 * seconds for status, seconds in times if status == 200)
    cuts = statistics.quantiles(good, n=100)
    return {
        "clients": clients,
        "took_s": round(took, 2),
        "per_second": round(len(good) / took, 1),
        "p50_ms": round(cuts[49], 2),
        "p99_ms": round(cuts[98], 2),
        "statuses": dict(sorted(Counter(str(status) for status, _ in times).items())),
    }


if __name__ == "__main__":
    main()
