"""What do the processes of a run send each other in a training step, and how long does that take?

Each process counts the bytes that it writes to its sockets (``wchar`` of /proc/self/io) over steps of the trainer's own
step, with gloo on this machine. Beside it stands the arithmetic of docs/scaling.md. The seconds are those of the
exchanges alone, repeated without the network and the objective.

Run:    .venv/bin/python benchmarks/ranks.py --json benchmarks/results/ranks-cpu.json
On:     any Linux; about two minutes
Result: docs/scaling.md; `--table FILE` prints its table from the record
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from vmcr2.distributed import Ranks, leave_together, rows_are_whole
from vmcr2.models import MLP
from vmcr2.objectives import OBJECTIVES
from vmcr2.training import Numerics, OptimSettings, Rows, Step

STEPS = 5
INPUTS, HIDDEN = 64, 256


class Size(NamedTuple):
    """Of a step: rows of the whole batch, features, classes, atoms for each class, processes."""

    m: int
    d: int
    k: int
    s: int
    ranks: int


BASE = Size(1000, 128, 10, 5, 2)
SIZES = (
    BASE,
    BASE._replace(m=2000),
    BASE._replace(d=256),
    BASE._replace(k=40),
    BASE._replace(s=12),
    BASE._replace(ranks=4),
    BASE._replace(m=1001, ranks=4),
)


def build(size: Size, objective: str, ranks: Ranks) -> Step:
    """A step of V-MCR² or another objective on random rows: two hidden layers with BatchNorm."""
    torch.manual_seed(0)
    labels = torch.arange(2 * size.m) % size.k
    network = MLP(INPUTS, size.d, hidden=(HIDDEN, HIDDEN), batch_norm=True)
    settings = {"atoms_per_class": size.s} if "vmcr2" in objective else {}
    with rows_are_whole():
        made = OBJECTIVES[objective](**settings).build(size.k, size.d, labels, size.m)
    step = Step(
        network,
        made,
        Rows(torch.randn(len(labels), INPUTS), labels),
        OptimSettings(batch_size=size.m),
        batch_size=size.m,
        dim=size.d,
        seed=0,
        numerics=Numerics(torch.device("cpu")),
        ranks=ranks,
    )
    step.begin(0)
    made.latch(step.embed(), labels)
    return step


def arithmetic(size: Size, objective: str = "vmcr2") -> dict[str, float]:
    """Bytes that rank 0 sends in a step, in float32, by what they are for."""
    m, d, k, _, ranks = size
    rows = -(-m // ranks)
    weights = INPUTS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * d + d
    channels = [HIDDEN, HIDDEN]
    head = k * (d + 1) if objective.startswith("ce") else 0
    around = 2 * (ranks - 1) / ranks  # a ring of all-reduce
    return {
        "features": 4.0 * (ranks - 1) * rows * d,
        "gradients": 4.0 * around * (weights + sum(2 * C for C in channels) + head),
        "BatchNorm": 4.0 * sum((ranks - 1) * (2 * C + 1) + around * 2 * C for C in channels),
    }


def latching(size: Size) -> float:
    """Bytes that rank 0 sends when the features of the training set, 2m samples here, are gathered."""
    return 4.0 * (size.ranks - 1) * -(-2 * size.m // size.ranks) * size.d


def written() -> int:
    """Bytes that this process has written so far, to sockets too."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["wchar"])


def work(rank: int, size: Size, objective: str, folder: str) -> None:
    """In one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size.ranks)
    ranks = Ranks(active=True)
    step = build(size, objective, ranks)
    for _ in range(2):
        step()
    dist.barrier()
    before = written()
    for _ in range(STEPS):
        step()
    sent = (written() - before) / STEPS
    before = written()
    step.embed()
    gathered = written() - before
    features = torch.randn(ranks.sizes(size.m)[rank], size.d)
    step()
    seconds = []
    for _ in range(20):
        dist.barrier()
        start = time.perf_counter()
        ranks.gather(features, size.m)
        step._sum_gradients()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        found = {"sent": sent, "latching": gathered, "milliseconds": 1e3 * statistics.median(seconds)}
        (Path(folder) / "found.json").write_text(json.dumps(found))
    leave_together()


def measure(size: Size, objective: str = "vmcr2") -> dict[str, Any]:
    """Processes on this machine: bytes that rank 0 sends in a step, and the arithmetic."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, args=(size, objective, folder), nprocs=size.ranks)  # type: ignore[no-untyped-call]
        found: dict[str, Any] = json.loads((Path(folder) / "found.json").read_text())
    return size._asdict() | {"objective": objective, "arithmetic": arithmetic(size, objective)} | found


def table(record: dict[str, Any]) -> str:
    """The record as Markdown."""
    parts_of = ("features", "gradients", "BatchNorm")
    headings = ["m, d, k, q, processes", *(f"{name}, KB" for name in parts_of), "in all, KB", "measured, KB", "ms"]
    headings += ["latching, KB", "measured, KB"]
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for row in record["results"]:
        parts = row["arithmetic"]
        cells = [f"{row['m']}, {row['d']}, {row['k']}, {row['k'] * row['s']}, {row['ranks']}"]
        cells += [f"{parts[name] / 1e3:.1f}" for name in parts_of]
        cells += [f"{sum(parts.values()) / 1e3:.1f}", f"{row['sent'] / 1e3:.1f}", f"{row['milliseconds']:.1f}"]
        size = Size(*(row[name] for name in Size._fields))
        cells += [f"{latching(size) / 1e3:.1f}", f"{row['latching'] / 1e3:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or print the table of a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--table", type=Path, help="a record whose table to print; nothing is measured")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.table.read_text())))
        return
    record = {
        "benchmark": "ranks",
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, torch {torch.__version__}, gloo",
        "date": time.strftime("%Y-%m-%d"),
        "results": [measure(size) for size in SIZES],
    }
    print(table(record))
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
