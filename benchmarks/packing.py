"""How fast is a folder of small pictures packed, compared with one core that only decodes them?

Writes 100,000 pictures of 32×32 into a folder of ten classes (once), then repeats in turn: one core decodes a tenth of
them in a loop, and ``from_folder`` packs all of them with all cores, listing, checksums and writing included. Each
runs in a process of its own, which reports its peak memory.

Run:    .venv/bin/python benchmarks/packing.py --json benchmarks/results/packing-cpu.json
On:     any CPU; about five minutes for 100,000 pictures and 3 rounds on 2 cores
Result: benchmarks/results/packing-cpu.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

CLASSES = 10

ONE_CORE = """
import os, sys, time
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
from vmcr2.data._decode import Task, decode
files = sorted(str(path) for path in __import__("pathlib").Path(sys.argv[1]).rglob("*.*"))[:: int(sys.argv[2])]
task = Task(3, (32, 32))
start = time.perf_counter()
assert all(len(decode(path, task)[1]) == 3072 for path in files)
print(len(files) / (time.perf_counter() - start))
"""

ALL_CORES = """
import resource, sys, tempfile, time
import torch
from vmcr2.data import from_folder
peak = lambda who: resource.getrusage(who).ru_maxrss / 1024
before = peak(resource.RUSAGE_SELF)
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as cache:
    start = time.perf_counter()
    source = from_folder(sys.argv[1], cache=cache)
    took = time.perf_counter() - start
    after, worker = peak(resource.RUSAGE_SELF), peak(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    from_folder(sys.argv[1], cache=cache)
    again = time.perf_counter() - start
    total = len(source.train().labels) + len(source.test().labels)
print(total / took, before, after, worker, again)
"""


def write_pictures(folder: Path, count: int, kind: str) -> None:
    """Coloured noise over smooth shades, so that files are as large as those of small photographs."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
    for row in range(count):
        shades = generator.integers(0, 200, (4, 4, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(shades).resize((32, 32), Image.Resampling.BILINEAR))
        pixels = smooth + generator.integers(0, 20, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class{row % CLASSES}" / f"{row:06d}.{kind}")


def run(script: str, *arguments: str) -> list[float]:
    """The numbers that a script prints."""
    command = [sys.executable, "-c", script, *arguments]
    return [float(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


def measure(folder: Path, cache: Path, rounds: int) -> dict[str, Any]:
    """Pictures per second of one core and of all, in turn."""
    from vmcr2.data._workers import cores

    one: list[float] = []
    everything: list[list[float]] = []
    for _ in range(rounds):
        one += run(ONE_CORE, str(folder), "10")
        everything.append(run(ALL_CORES, str(folder), str(cache)))
        print(f"one core {one[-1]:.0f}/s, packing {everything[-1][0]:.0f}/s", flush=True)
    one += run(ONE_CORE, str(folder), "10")  # before and after every packing, because the machine is shared
    beside = [(a + b) / 2 for a, b in pairwise(one)]
    ratios = [row[0] / (cores() * rate) for row, rate in zip(everything, beside, strict=True)]
    return {
        "cores": cores(),
        "one_core_per_second": one,
        "packed_per_second": [row[0] for row in everything],
        "packed / (cores × one core)": ratios,
        "median_ratio": statistics.median(ratios),
        "main_process_mib_before": max(row[1] for row in everything),
        "main_process_mib_peak": max(row[2] for row in everything),
        "worker_mib_peak": max(row[3] for row in everything),
        "opened_again_seconds": statistics.median(row[4] for row in everything),
    }


def main() -> None:
    """Write pictures unless they are there, measure, print, and write the figures with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--folder", type=Path, help="where the pictures are, or shall be; by default a temporary one")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--kind", choices=("png", "jpg"), default="png")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "pictures"
        if not folder.exists():
            write_pictures(folder, options.count, options.kind)
        result = measure(folder, Path(temporary), options.rounds)
    record = {
        "benchmark": "packing",
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "pictures": options.count,
        "kind": f"32×32 {options.kind}",
        **result,
    }
    print(json.dumps(record, indent=1, ensure_ascii=False))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
