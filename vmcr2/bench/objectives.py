"""Forward and backward of every implementation of the objectives, in one process: times, memory, ratios."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._contenders import (
    CONTENDERS,
    DENSE,
    EXACT,
    EXACT_DENSE,
    EXACT_LOOP,
    EXACT_STEP,
    SOFT,
    SOFT_BATCHED,
    SOFT_BATCHED_MEMBERSHIP,
    SOFT_MEMBERSHIP,
    VARIATIONAL,
    VARIATIONAL_STEP,
    Batch,
    Size,
    job_for,
)
from ._measure import (
    Job,
    Say,
    caption,
    captured,
    environment,
    figure,
    interleaved_seconds,
    peak_bytes,
    sentence,
    silent,
    summary,
)

SIZES = [
    Size("MNIST, CIFAR-10", 1000, 128, 10, 20, labels="both"),
    Size("CIFAR-100", 2000, 500, 100, 10),
    Size("Tiny ImageNet", 2000, 500, 200, 10),
]
# a GPU's table has 1024 dimensions, where a CPU would need a minute
MANY_CLASSES = {
    "cuda": Size("1000 classes", 4000, 1024, 1000, 4, many=True),
    "cpu": Size("1000 classes", 4000, 512, 1000, 4, many=True),
}
SOFT_LABELS = Size("soft labels", 4000, 64, 20, 1, labels="soft")

RATIOS = {
    "exact: class loop / as shipped": (EXACT_LOOP, EXACT),
    "exact: d×d / as shipped": (EXACT_DENSE, EXACT),
    "V-MCR²: d×d / as shipped": (DENSE, VARIATIONAL),
    "V-MCR² / exact, as shipped": (VARIATIONAL, EXACT),
    "V-MCR² with R(z) / exact, training steps": (VARIATIONAL_STEP, EXACT_STEP),
    "soft exact: as shipped / batched d×d": (SOFT, SOFT_BATCHED),
    "soft exact, gradient in Π too: as shipped / batched d×d": (SOFT_MEMBERSHIP, SOFT_BATCHED_MEMBERSHIP),
}
OURS_IS_DIVIDED_BY = ("exact: class loop / as shipped", "exact: d×d / as shipped", "V-MCR²: d×d / as shipped")
"""Ratios that are better if they are larger; of the others, smaller ones are better."""


def sizes_for(device: torch.device) -> list[Size]:
    """Every block of the table."""
    return [*SIZES, MANY_CLASSES[device.type], SOFT_LABELS]


def measure(size: Size, device: torch.device, budget: float) -> dict[str, Any]:
    """One size: times and peak memory of every contender, and the ratios of the claims."""
    batch = Batch(size, device)
    rows: dict[str, dict[str, Any]] = {}
    jobs: dict[str, Job] = {}
    faults: dict[str, Tensor] = {}
    for name, contender in CONTENDERS.items():
        if not size.has(contender):
            continue
        try:
            ready = contender.make(batch)
            jobs[name] = job_for(ready, batch.features)
            rows[name] = {"peak_mib": peak_bytes(jobs[name], device) / 2**20}
        except RuntimeError as error:  # out of memory, a missing operation: continue with the others
            jobs.pop(name, None)
            rows[name] = {"failed": sentence(error)}
            continue
        if ready.fault is not None:
            faults[name] = ready.fault
    least = 5 if device.type == "cuda" else 3
    for name, runs in interleaved_seconds(jobs, budget=budget, least=least, device=device).items():
        rows[name]["eager"] = summary(runs)
    if device.type == "cuda":
        _measure_captured(jobs, rows, budget, device)
    for name in jobs:
        if name in faults and bool(faults[name]):
            rows[name] = {"failed": "the loss set its fault flag: what was timed is not the objective"}
    return {"size": size._asdict(), "contenders": rows, "ratios": _ratios(rows)}


def _measure_captured(
    jobs: dict[str, Job], rows: dict[str, dict[str, Any]], budget: float, device: torch.device
) -> None:
    replays: dict[str, Job] = {}
    for name in sorted(jobs, key=lambda name: CONTENDERS[name].per_class):  # last those that may break the capture
        reason = CONTENDERS[name].not_captured
        if reason is None:
            try:
                replays[name] = captured(jobs[name])
                continue
            except RuntimeError as error:
                reason = sentence(error)
        rows[name]["not_captured"] = reason
    for name, runs in interleaved_seconds(replays, budget=budget, least=5, device=device).items():
        rows[name]["captured"] = summary(runs)


def _ratios(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By mode: eager against eager, captured against captured."""
    ratios: dict[str, dict[str, float]] = {"eager": {}, "captured": {}}
    for mode, found in ratios.items():
        for name, pair in RATIOS.items():
            slow, fast = (rows.get(contender, {}).get(mode) for contender in pair)
            if slow and fast:
                found[name] = slow["median_ms"] / fast["median_ms"]
    return ratios


def run(
    device: torch.device, *, budget: float | None = None, sizes: list[Size] | None = None, say: Say = silent
) -> dict[str, Any]:
    """Everything that `vmcr2 bench objectives` measures; ``budget`` is in seconds per contender, size and mode."""
    cuda = device.type == "cuda"
    if sizes is None:
        sizes = sizes_for(device)
    if budget is None:
        budget = 0.3 if cuda else 2.0
    results = []
    for size in sizes:
        say(f"batches of {size.m}, d {size.d}, {size.k} classes")
        results.append(measure(size, device, budget))
    return {"benchmark": "objectives", "environment": environment(device), "results": results}


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, as benchmarks/README.md holds them."""
    modes = ("eager", "captured") if record["environment"]["device"] == "cuda" else ("eager",)
    times = ["eager, ms (quartiles)", "in a CUDA graph, ms"] if len(modes) > 1 else ["median ms (quartiles)"]
    headings = ["m, d, k, q", "contender", *times, "peak MiB"]
    lines = [caption(record["environment"]) + ".", ""]
    lines += ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for result in record["results"]:
        size = Size(**result["size"])
        for name, row in result["contenders"].items():
            cells = [f"{size.m}, {size.d}, {size.k}, {size.q}", name, *_cells(row, modes)]
            lines.append("| " + " | ".join(cells) + " |")
    remarks = _remarks(record["results"])
    return "\n".join([*lines, *(["", *remarks] if remarks else []), "", *_ratio_table(record["results"], modes)])


def _cells(row: dict[str, Any], modes: tuple[str, ...]) -> list[str]:
    if "failed" in row:
        return ["failed" if mode == "eager" else "–" for mode in modes] + ["–"]
    times = [figure(row[mode]) if mode in row else "–" for mode in modes]
    return [*times, f"{row['peak_mib']:.0f}"]


def _remarks(results: list[dict[str, Any]]) -> list[str]:
    """Why a cell is empty."""
    said: dict[str, list[str]] = {}
    for result in results:
        for name, row in result["contenders"].items():
            for key, words in (("failed", "failed"), ("not_captured", "is not captured")):
                if key in row:
                    said.setdefault(f"{name} {words}: {row[key]}", []).append(result["size"]["data"])
    return [f"- {text} ({'; '.join(where)})." for text, where in said.items()]


def _ratio_table(results: list[dict[str, Any]], modes: tuple[str, ...]) -> list[str]:
    lines = ["| ratio | " + " | ".join(result["size"]["data"] for result in results) + " |"]
    lines.append("|---" * (len(results) + 1) + "|")
    for mode in modes:
        for name in RATIOS:
            values = [result["ratios"][mode].get(name) for result in results]
            if any(value is not None for value in values):
                cells = ["–" if value is None else f"{value:.2f}" if value < 1 else f"{value:.1f}" for value in values]
                label = f"{name}, in a graph" if mode == "captured" else name
                lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines
