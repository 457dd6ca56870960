"""Time and peak memory of callables on a CPU or a CUDA device, and a description of the machine."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch

from ..runs import git_commit

Say = Callable[[str], None]
"""Called with a line about what is measured next."""
Job = Callable[[], object]
CPU = torch.device("cpu")

_WINDOW_SECONDS = 5e-3
_MOST_REPEATS = 50
_PROFILES = 5


def silent(text: str) -> None:
    """Say nothing."""


def interleaved_seconds(
    jobs: dict[str, Job], *, budget: float, least: int = 3, device: torch.device = CPU
) -> dict[str, list[float]]:
    """Seconds of each job, round after round, so that a slow moment of a shared machine affects all of them.

    A job is finished after ``least`` runs and ``budget`` seconds. With one CPU thread, seconds are those that the
    processor worked for this process. On CUDA the time is between two events on the device,
    around as many runs in a row as fill 5 ms; warm-up runs are not counted.
    """
    for job in jobs.values():
        for _ in range(3 if device.type == "cuda" else 1):
            job()
    if device.type == "cuda":
        repeats = {name: _repeats(_on_cuda(job, 1)) for name, job in jobs.items()}
    else:
        repeats = dict.fromkeys(jobs, 1)
    clock = _on_cuda if device.type == "cuda" else _on_cpu
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    while True:
        waiting = [name for name, runs in seconds.items() if len(runs) < least or sum(runs) * repeats[name] < budget]
        if not waiting:
            return seconds
        for name in waiting:
            seconds[name].append(clock(jobs[name], repeats[name]))


def _repeats(seconds: float) -> int:
    return max(1, min(_MOST_REPEATS, round(_WINDOW_SECONDS / max(seconds, 1e-9))))


def _on_cpu(job: Job, repeats: int) -> float:
    """With one thread the processor's time for this process, without that of others on a busy machine."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(repeats):
        job()
    return (clock() - start) / repeats


def _on_cuda(job: Job, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        job()
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1e3 / repeats


def once(job: Job, device: torch.device) -> float:
    """Seconds of a single run, for jobs that take seconds."""
    return _on_cuda(job, 1) if device.type == "cuda" else _on_cpu(job, 1)


def captured(job: Job) -> Job:
    """The job recorded in a CUDA graph; raises ``RuntimeError`` if that is not possible."""
    before = torch.cuda.current_stream()
    warm = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    warm.wait_stream(before)
    with torch.cuda.stream(warm):
        for _ in range(3):
            job()
    before.wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            job()
    except RuntimeError:
        torch.cuda.set_stream(before)  # a failed capture leaves its own stream as the current one
        torch.cuda.synchronize()
        raise
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def peak_bytes(job: Job, device: torch.device = CPU) -> int:
    """The most memory of the job's tensors at one time, without what was allocated before it."""
    job()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        job()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler prints a line at every start and stop
    # a profile of a short job sometimes loses its events; a job that allocates nothing has none in any of them
    return next(filter(None, (_profiled_peak(job) for _ in range(_PROFILES))), 0)


def _profiled_peak(job: Job) -> int:
    """The most bytes at one time that the profiler saw while the job ran."""
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


def environment(device: torch.device = CPU) -> dict[str, Any]:
    """Hardware, versions, commit and date, to be stored with the figures."""
    record: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": device.type,
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "git_commit": git_commit(),
    }
    if device.type == "cuda":
        record |= {
            "gpu": torch.cuda.get_device_name(device),
            "gpu_gib": round(torch.cuda.get_device_properties(device).total_memory / 2**30),
            "driver": _driver(),
            "cuda": torch.version.cuda,
        }
    return record


def caption(record: dict[str, Any]) -> str:
    """The environment in one line, for the top of a table."""
    commit = (record["git_commit"] or "none")[:7]
    software = f"torch {record['torch']}, Python {record['python']}, commit {commit}"
    if record["device"] == "cuda":
        driver = f", driver {record['driver']}" if record["driver"] else ""
        return f"{record['date']}, {record['gpu']} ({record['gpu_gib']} GiB){driver}, CUDA {record['cuda']}, {software}"
    threads = f"{record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    return f"{record['date']}, {record['cpu']}, {record['cores']} cores, {threads}, {software}"


def figure(timing: dict[str, Any]) -> str:
    """«median (quartiles)» in milliseconds, with the digits that mean something."""
    values = [timing[name] for name in ("median_ms", "lower_quartile_ms", "upper_quartile_ms")]
    digits = 1 if values[0] >= 10 else 2 if values[0] >= 1 else 3
    median, lower, upper = (f"{value:.{digits}f}" for value in values)
    return f"{median} ({lower}–{upper})"


def sentence(error: Exception) -> str:
    """The kind of the error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.splitlines()[0].strip() if found.stdout.strip() else None


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
