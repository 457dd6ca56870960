"""Does a run that trains for an hour hold its memory flat?

Starts `vmcr2 train digits` with far more epochs than fit into the time, with a line of metrics every 100 epochs, a
measurement on held-out samples every 1,000 and a checkpoint every 20 s. Looks at its resident memory every 10 s, and
ends it with SIGTERM, as a cluster does: it must save its state and say how to go on. The slope is that of a straight
line through the second half, the first minutes are the start of the process.

Run:    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/memory_hour.py --json benchmarks/results/memory-hour-cpu.json
Draw:   .venv/bin/python benchmarks/memory_hour.py --draw benchmarks/results/memory-hour-cpu.json
On:     any CPU with Linux's /proc; one hour
Result: benchmarks/results/memory-hour-cpu.json, docs/images/memory-hour.png, docs/reliability.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

IMAGE = Path(__file__).parent.parent / "docs/images/memory-hour.png"
SETTINGS = ("log_every=100", "eval_every=1000", "holdout=200", "checkpoint_seconds=20")


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path, metavar="JSON")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks")
    asked = parser.parse_args()
    if asked.draw is not None:
        draw(json.loads(asked.draw.read_text()))
        return
    found = machine() | measured(60 * asked.minutes, asked.every)
    found |= judged(found["seconds"], found["mebibytes"])
    print(json.dumps({name: value for name, value in found.items() if not isinstance(value, list)}, indent=1))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found) + "\n")


def measured(seconds: float, every: float) -> dict[str, Any]:
    """Train for so long, and look."""
    times, sizes = [], []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "vmcr2", "train", "digits", "--epochs", "10000000", "--out", str(out)]
        for setting in SETTINGS:
            command += ["--set", setting]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        start = time.monotonic()
        while (now := time.monotonic() - start) < seconds and process.poll() is None:
            times.append(round(now, 1))
            sizes.append(round(resident(process.pid), 2))
            time.sleep(every)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=300)
        lines = sum(1 for _ in (out / "metrics.jsonl").open("rb"))
        checkpoints = sorted(path.name for path in (out / "checkpoint").iterdir())
    return {
        "seconds": times,
        "mebibytes": sizes,
        "exit_code": process.returncode,
        "said": said.strip().replace(folder, "…"),
        "lines_of_metrics": lines,
        "checkpoints": checkpoints,
    }


def resident(pid: int) -> float:
    """MiB that the process has in memory."""
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def judged(times: list[float], sizes: list[float]) -> dict[str, Any]:
    """The slope of the second half, in MiB for an hour, and its lowest and highest value."""
    late = [(t, size) for t, size in zip(times, sizes, strict=True) if t >= times[-1] / 2]
    mean_t, mean_s = (sum(column) / len(late) for column in zip(*late, strict=True))
    spread = sum((t - mean_t) ** 2 for t, _ in late)
    slope = sum((t - mean_t) * (size - mean_s) for t, size in late) / spread
    own = [size for _, size in late]
    return {"slope_mib_per_hour": round(3600 * slope, 3), "lowest": min(own), "highest": max(own)}


def machine() -> dict[str, Any]:
    """Where and with what."""
    import torch

    from vmcr2 import __version__

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": f"vmcr2 {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "commit": commit.stdout.strip(),
    }


def draw(found: dict[str, Any]) -> None:
    """The memory over the time."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.plot([t / 60 for t in found["seconds"]], found["mebibytes"], linewidth=1.5)
    axes.set(xlabel="minutes of training", ylabel="resident memory, MiB", ylim=(0, 1.15 * max(found["mebibytes"])))
    axes.set_title(f"vmcr2 train digits: {found['slope_mib_per_hour']:+.2f} MiB for an hour, second half", fontsize=10)
    axes.grid(alpha=0.3)
    figure.savefig(IMAGE, dpi=110)
    print(IMAGE)


if __name__ == "__main__":
    main()
