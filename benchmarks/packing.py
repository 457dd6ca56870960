"""How fast is a folder of small pictures packed, compared with cores that only decode them?

Writes 100,000 pictures of 32×32 into a folder of ten classes (once). Then it measures in turn, round after round:

- alone: one process decodes a tenth of the pictures in a loop;
- at once: one such process for each core, all at the same time, for a fifth of the pictures;
- packing: ``from_folder`` with all cores, which includes listing, checksums and writing the cache.

"alone" times the number of cores is the rate of an ideal machine. Two threads of one physical core, or other programs
on the machine, make it unreachable. "at once" suffers from these as packing does, so it is the fairer comparison.

Run:    .venv/bin/python benchmarks/packing.py --json benchmarks/results/packing-cpu.json
On:     any CPU; about five minutes for 100,000 pictures and 3 rounds on 2 cores
Result: benchmarks/results/packing-cpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CLASSES = 10

DECODE = """
import sys, time
from pathlib import Path
from vmcr2.data._decode import Task, decode
files = sorted(map(str, Path(sys.argv[1]).rglob("*.*")))[int(sys.argv[2]) :: int(sys.argv[3])]
sys.stdin.readline()
task = Task(3, (32, 32))
start, used = time.perf_counter(), time.process_time()
assert all(len(decode(path, task)[1]) == 3072 for path in files)
print(len(files) / (time.perf_counter() - start), 1e6 * (time.process_time() - used) / len(files))
"""

PACK = """
import re, resource, sys, tempfile, time
from pathlib import Path
import torch
from vmcr2.data import from_folder
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
cpu = lambda: sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
def look(found, done, total):  # the peaks of the workers, once, before they end
    if not found and done > 0.9 * total:
        for children in Path("/proc/self/task").glob("*/children"):
            for pid in children.read_text().split():
                found.append(int(re.search(r"VmHWM:\\s*(\\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024)
before = peak()
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as cache:
    start, used, worker = time.perf_counter(), cpu(), []
    source = from_folder(sys.argv[1], cache=cache, progress=lambda what, done, total: look(worker, done, total))
    took, used = time.perf_counter() - start, cpu() - used
    after = peak()
    start = time.perf_counter()
    from_folder(sys.argv[1], cache=cache)
    again = time.perf_counter() - start
    total = len(source.train().labels) + len(source.test().labels)
print(total / took, 1e6 * used / total, before, after, max(worker, default=0), again)
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


def run(script: str, *arguments: list[str]) -> list[list[float]]:
    """The numbers that processes of a script print, which work at the same time, one for each list of arguments."""
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", script, *each], stdin=pipe, stdout=pipe, text=True)
        for each in arguments
    ]
    time.sleep(3 if len(processes) > 1 else 0)  # until all have listed the files
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    return [[float(word) for word in process.communicate()[0].split()] for process in processes]


def measure(folder: Path, cache: Path, rounds: int) -> dict[str, Any]:
    """Pictures per second of the three, and what packing costs."""
    from vmcr2.data._workers import cores

    alone, at_once, decoding, packing = list[float](), list[float](), list[float](), list[list[float]]()
    for _ in range(rounds):
        alone += [rate for rate, _ in run(DECODE, [str(folder), "0", "10"])]
        together = run(DECODE, *[[str(folder), str(row), str(5 * cores())] for row in range(cores())])
        at_once.append(sum(rate for rate, _ in together))
        decoding.append(statistics.mean(used for _, used in together))
        packing += run(PACK, [str(folder), str(cache)])
        print(f"alone {alone[-1]:.0f}/s, at once {at_once[-1]:.0f}/s, packing {packing[-1][0]:.0f}/s", flush=True)
    rates, used, before, after, worker, again = zip(*packing, strict=True)
    return {
        "cores": cores(),
        "load_average_of_the_last_five_minutes": os.getloadavg()[1],
        "per_second": {"alone": alone, "at_once": at_once, "packing": rates},
        "packing / (cores × alone)": statistics.median(a / (cores() * b) for a, b in zip(rates, alone, strict=True)),
        "packing / at once": statistics.median(a / b for a, b in zip(rates, at_once, strict=True)),
        "cpu_us_per_picture": {"at_once": decoding, "packing": used},
        "at once / packing, in CPU time": statistics.median(a / b for a, b in zip(decoding, used, strict=True)),
        "peak_mib": {"after_import": max(before), "main_process": max(after), "worker": max(worker)},
        "opened_again_seconds": min(again),
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
