"""Seconds per epoch of every objective with the paper's networks, by the trainer's own engine, on random images.

An epoch is the trainer's: order, augmentation, steps, the check that all is finite; without latching, which falls due
every 50 epochs, and without the metrics that are made now and then. Beside them, on a GPU, the first replayed step of a
new process, and a real run.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data import Source
from ..runs import Config
from . import _first_step as first_step, _real_run as real_run
from ._epochs import CE, CONTENDERS, DATA, ROWS, Epochs, configuration
from ._images import random_source
from ._measure import Say, caption, environment, sentence, silent

__all__ = ["CONTENDERS", "DATA", "ROWS", "measure", "run", "table"]


def measure(
    config: Config, source: Source, *, epochs: int = 5, device: torch.device, budget: float = 30.0
) -> dict[str, Any]:
    """Epochs of one configuration, as many as ``budget`` seconds allow, but at least one."""
    ready = Epochs(config, source, device)
    for _ in range(epochs):
        ready.time_one()
        if sum(ready.seconds) > budget:
            break
    return ready.row()


def run(
    device: torch.device,
    *,
    data: tuple[str, ...] | None = None,
    images: int | None = None,
    epochs: int = 5,
    say: Say = silent,
) -> dict[str, Any]:
    """Everything that `vmcr2 bench epoch` measures; on a CPU two batches of images, of MNIST alone, unless said."""
    on_gpu = device.type == "cuda"
    names = data or (DATA if on_gpu else DATA[:1])
    sections: dict[str, Any] = {}
    if on_gpu and first_step.DATA in names:  # before this process takes room on the device
        sections["first_step"] = first_step.run(device, images=images, say=say)
    results = [row for name in names for row in _rows(name, device, images, epochs, say)]
    if on_gpu and real_run.DATA in names:
        sections["real_run"] = real_run.run(device, results, images=images, say=say)
    return {"benchmark": "epoch", "environment": environment(device), "results": results} | sections


def _rows(name: str, device: torch.device, images: int | None, epochs: int, say: Say) -> list[dict[str, Any]]:
    """The objectives of one data set, all on the same images."""
    on_gpu = device.type == "cuda"
    plain = configuration(name, CE, device)
    count = images or (None if on_gpu else 2 * plain.optim.batch_size)
    source = random_source(plain.data.name, count)
    results = []
    for contender in ROWS[name]:
        title = contender.title
        say(f"{name}, {title}: {count or 'all'} images an epoch")
        row: dict[str, Any] = {"data": name, "contender": title, "compiled": False}
        try:
            row |= measure(configuration(name, contender, device), source, epochs=epochs, device=device)
        except RuntimeError as error:  # out of memory: the others go on
            row["failed"] = sentence(error)
        results.append(row)
    return results


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, with each objective's ratio to cross-entropy beside it; then what stands beside them."""
    parts = [caption(record["environment"]) + ".", _table_of_rows(record["results"])]
    if "first_step" in record:
        parts.append("The first replayed step of a new process, in seconds after `import torch`:")
        parts.append(_table_of_first_steps(record["first_step"]))
    if "real_run" in record:
        parts.append("A real run against the bench, in images per second:")
        parts.append(_table_of_runs(record["real_run"]))
    return "\n\n".join(parts)


def _table_of_rows(rows: list[dict[str, Any]]) -> str:
    headings = ["data", "objective", "images", "s per epoch (min–max)", "/ CE", "ms per step", "to first step, s"]
    reference = {
        (row["data"], row["compiled"]): row["seconds_per_epoch"]
        for row in rows
        if row["contender"] == CE.title and "failed" not in row
    }
    lines = []
    for row in rows:
        data = row["data"] + (", compiled" if row["compiled"] else "")
        if "failed" in row:
            lines.append([data, row["contender"], "–", row["failed"], "–", "–", "–", "–"])
            continue
        seconds, base = row["seconds_per_epoch"], reference.get((row["data"], row["compiled"]))
        lines.append(
            [
                data,
                row["contender"],
                f"{row['images']:,}",
                f"{seconds:.4f} ({row['fastest']:.4f}–{row['slowest']:.4f})",
                "–" if base is None else f"{seconds / base:.2f}",
                f"{row['milliseconds_per_step']:.2f}",
                f"{row['seconds_to_first_step']:.1f}",
                _mib(row),
            ]
        )
    return _markdown([*headings, "peak MiB"], lines)


def _table_of_first_steps(rows: list[dict[str, Any]]) -> str:
    headings = ["data", "objective", "s", "s, nothing compiled before", "peak MiB"]
    lines = []
    for row in rows:
        cells = [row["failed"], "–", "–"] if "failed" in row else []
        cells = cells or [f"{row['seconds']:.2f}", f"{row['seconds_on_a_new_machine']:.2f}", _mib(row)]
        lines.append([row["data"], row["contender"], *cells])
    return _markdown(headings, lines)


def _table_of_runs(rows: list[dict[str, Any]]) -> str:
    headings = ["data", "objective", "real run (min–max)", "bench", "real run / bench", "peak MiB"]
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([row["data"], row["contender"], row["failed"], "–", "–", "–"])
            continue
        bench, ratio = row.get("bench_images_per_second"), row.get("ratio")
        lines.append(
            [
                row["data"],
                row["contender"],
                f"{row['images_per_second']:,.0f} ({row['slowest']:,.0f}–{row['fastest']:,.0f})",
                "–" if bench is None else f"{bench:,.0f}",
                "–" if ratio is None else f"{ratio:.2f}",
                _mib(row),
            ]
        )
    return _markdown(headings, lines)


def _mib(row: dict[str, Any]) -> str:
    return "–" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"


def _markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|---" * len(headings) + "|", *lines[1:]])
