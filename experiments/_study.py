"""What the two studies share: two processes, hardware and versions in the result, a Markdown table."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a process, before numpy and torch are loaded

import numpy as np
import sklearn
import torch

RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, Any]:
    """Where and with what this ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "commit": commit,
    }


def run_all(function: Any, jobs: list[Any], workers: int) -> list[Any]:
    """The results of all jobs in order."""
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(function, jobs))


def save(name: str, content: dict[str, Any]) -> None:
    """One JSON file per study."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(json.dumps({"environment": environment(), **content}, indent=1) + "\n")


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def between_marks(page: str, begin: str, end: str, content: str) -> str:
    """The page with what stands between two marks replaced."""
    before, mark, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        raise SystemExit(f"a page must have the marks {begin!r} and {end!r} around its table")
    return f"{before}{begin}\n{content}\n{end}{after}"


def spread(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
