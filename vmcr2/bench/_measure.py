"""Time and peak memory of callables, and what machine they were measured on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

import torch

Job = Callable[[], object]


def interleaved_seconds(jobs: dict[str, Job], *, budget: float, least: int = 3) -> dict[str, list[float]]:
    """Seconds of each job, round after round, so that a slow spell of a shared machine hits all of them.

    A job leaves the rounds once it has had ``least`` runs and its share of ``budget`` seconds.
    """
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    while True:
        waiting = [name for name, runs in seconds.items() if len(runs) < least or sum(runs) < budget]
        if not waiting:
            return seconds
        for name in waiting:
            start = time.perf_counter()
            jobs[name]()
            seconds[name].append(time.perf_counter() - start)


def peak_bytes(job: Job) -> int:
    """The most memory that the job's tensors took at one time on the CPU, beyond what was there before it."""
    job()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        job()
    level = peak = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


def summary(runs: list[float]) -> dict[str, float | int]:
    """Median, quartiles and count of the runs, in milliseconds."""
    quartiles = statistics.quantiles(runs, n=4) if len(runs) > 1 else [runs[0]] * 3
    return {
        "median_ms": 1e3 * statistics.median(runs),
        "lower_quartile_ms": 1e3 * quartiles[0],
        "upper_quartile_ms": 1e3 * quartiles[2],
        "runs": len(runs),
    }


def environment() -> dict[str, str | int]:
    """Hardware, versions and date, for the record beside the figures."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
