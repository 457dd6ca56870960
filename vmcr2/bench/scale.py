"""A training step of every objective while the number of classes grows, at a fixed batch: time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..data import free_memory
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
from ._scale_contenders import BLOCK, CONTENDERS, SHAPES, Contender, Prepared, Shape, Turns

CLASSES = (10, 100, 1_000, 3_000, 10_000, 30_000, 100_000)
RATIO = (1_000, 100_000)
"""The block step at the second k, divided by that at the first."""
MOST_SECONDS = {"cuda": 0.3, "cpu": 5.0}
"""A step that is expected to take longer is left out."""


class Limits:
    """What the last measured k says of the next: steps that would take too long, or too much memory, are left out."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = MOST_SECONDS[device.type]
        self.bytes = 0.9 * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory() / 4
        self._last: dict[str, tuple[int, float, float]] = {}

    def measured(self, name: str, k: int, seconds: float, size: float) -> None:
        """A contender's step at k."""
        self._last[name] = k, seconds, size

    def reason(self, name: str, contender: Contender, k: int) -> str | None:
        """Why it is left out at k; None if it is not."""
        if name not in self._last:
            return None
        before, seconds, size = self._last[name]
        times = (k / before) ** contender.growth
        if seconds * times > self.seconds:
            return f"from k = {before:,} on a step would grow to about {seconds * times:.0f} s"
        if size * times > self.bytes:
            return (
                f"from k = {before:,} on it would grow to about {size * times / 2**30:.0f} GiB, "
                f"and {self.bytes / 2**30:.0f} GiB are free for it"
            )
        return None


def run(
    device: torch.device,
    *,
    budget: float | None = None,
    classes: Sequence[int] | None = None,
    shape: Shape | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Everything that `vmcr2 bench scale` measures; ``budget`` is in seconds per contender and k."""
    shape = shape or SHAPES[device.type]
    if budget is None:
        budget = 0.2 if device.type == "cuda" else 1.0
    limits = Limits(device)
    results = []
    for k in classes or CLASSES:
        say(f"{k:,} classes")
        results.append({"k": k, "present": shape.present(k), "contenders": measure(shape, k, device, budget, limits)})
    record = {"benchmark": "scale", "environment": environment(device), "shape": shape._asdict(), "results": results}
    return record | {"ratio": _ratio(record)}


def measure(shape: Shape, k: int, device: torch.device, budget: float, limits: Limits) -> dict[str, dict[str, Any]]:
    """One k: times and memory of every contender, and why one is missing."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # of the graphs of the k before
    turns = Turns(shape, k, device)
    rows: dict[str, dict[str, Any]] = {}
    jobs: dict[str, Job] = {}
    ready: dict[str, Prepared] = {}
    for name, contender in CONTENDERS.items():
        if reason := limits.reason(name, contender, k):
            rows[name] = {"left_out": reason}
            continue
        try:
            ready[name] = contender.make(turns)
            step = ready[name].job(turns)
            rows[name] = {
                "state_mib": ready[name].state_bytes / 2**20,
                "peak_mib": peak_bytes(step, device) / 2**20,
            }
            jobs[name] = _taking_turns(captured(step) if device.type == "cuda" else step, turns)
        except RuntimeError as error:  # out of memory, or it cannot be captured: continue with the others
            rows[name], _ = {"failed": sentence(error)}, ready.pop(name, None)
    for name, runs in interleaved_seconds(jobs, budget=budget, least=3, device=device).items():
        rows[name]["step"] = summary(runs)
        whole = rows[name]["state_mib"] + rows[name]["peak_mib"]
        limits.measured(name, k, rows[name]["step"]["median_ms"] / 1e3, whole * 2**20)
    for name, own in ready.items():
        fault = getattr(own.module, "fault", None)
        if fault is not None and bool(fault):
            rows[name] = {"failed": "the loss set its fault flag: what was timed is not the objective"}
    return rows


def _taking_turns(step: Job, turns: Turns) -> Job:
    """Another batch, then the step: the time of the copies, m·d floats, is the same for all."""

    def job() -> None:
        turns.next()
        step()

    return job


def _ratio(record: dict[str, Any]) -> float | None:
    """Of the block step, see :data:`RATIO`; None if one of the two was not measured."""
    found = {result["k"]: result["contenders"][BLOCK].get("step") for result in record["results"]}
    first, second = (found.get(k) for k in RATIO)
    return second["median_ms"] / first["median_ms"] if first and second else None


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, as benchmarks/README.md holds them."""
    shape = Shape(**record["shape"])
    how = "in a CUDA graph" if record["environment"]["device"] == "cuda" else "eager"
    lines = [
        f"{caption(record['environment'])}. Batches of {shape.m}, d {shape.d}, {shape.atoms} atoms per class, "
        f"{shape.each} samples of each class; {how}.",
        "",
        "| k | " + " | ".join(f"{name}, ms" for name in CONTENDERS) + " |",
        "|---" * (len(CONTENDERS) + 1) + "|",
    ]
    for result in record["results"]:
        cells = [_time(result["contenders"][name]) for name in CONTENDERS]
        lines.append(f"| {result['k']:,} | " + " | ".join(cells) + " |")
    lines += ["", "| k | " + " | ".join(f"{name}, MiB" for name in CONTENDERS) + " |"]
    lines.append("|---" * (len(CONTENDERS) + 1) + "|")
    for result in record["results"]:
        cells = [_memory(result["contenders"][name]) for name in CONTENDERS]
        lines.append(f"| {result['k']:,} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Memory is what stays (parameters and buffers) + the most that a step takes beside it.",
        *_notes(record),
    ]
    return "\n".join(lines)


def _time(row: dict[str, Any]) -> str:
    return figure(row["step"]) if "step" in row else "–"


def _memory(row: dict[str, Any]) -> str:
    return f"{row['state_mib']:,.0f} + {row['peak_mib']:,.0f}" if "step" in row else "–"


def _notes(record: dict[str, Any]) -> list[str]:
    """Why a cell is empty, and the ratio of the claim."""
    notes, said = [], set()
    for result in record["results"]:
        for name, row in result["contenders"].items():
            why = row.get("left_out") or row.get("failed")
            if why and name not in said:
                said.add(name)
                notes.append(f"- {name} is left out from k = {result['k']:,} on: {why}.")
    if record["ratio"] is not None:
        first, second = RATIO
        notes.append(f"- {BLOCK}: the step at k = {second:,} takes {record['ratio']:.2f} times the one at {first:,}.")
    return ["", *notes] if notes else []
