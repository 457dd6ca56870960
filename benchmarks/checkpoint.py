"""What does the checksum of a checkpoint cost?

Writes and reads the tensors of a ResNet-18 with its momentum, 90 MB, again and again: as a run does it (checksum, then
brought to the disk), without the checksum, and by the safetensors library alone. Medians of processor time, in turn,
round after round: other programs on the machine disturb it little.

Run:    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/checkpoint.py --json benchmarks/results/checkpoint-cpu.json
On:     any CPU; a minute
Result: benchmarks/results/checkpoint-cpu.json, docs/reliability.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory_hour import machine
from safetensors.torch import load_file, save_file
from torch import Tensor

from vmcr2._shared import _tensor_file, atomic, tensors_are_whole, write_tensor_file
from vmcr2.models import build

ROUNDS = 15


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    weights = build("resnet18", dim=128, input_shape=(3, 32, 32)).state_dict()
    tensors = weights | {f"momentum.{name}": value.clone() for name, value in weights.items()}
    megabytes = sum(value.nbytes for value in tensors.values()) / 1e6
    with tempfile.TemporaryDirectory(dir=".") as folder:
        found = measured(Path(folder), tensors)
    result = machine() | {"megabytes": round(megabytes, 1), "milliseconds": found}
    print(json.dumps(result, indent=1))
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


def measured(folder: Path, tensors: dict[str, Tensor]) -> dict[str, float]:
    """Milliseconds, medians over the rounds."""

    def as_a_run() -> None:
        with atomic(folder / "a", durable=True) as temporary:
            write_tensor_file(temporary, tensors)

    def without() -> None:
        own = _tensor_file.checksum_of
        _tensor_file.checksum_of = lambda *_: "0" * 64
        try:
            as_a_run()
        finally:
            _tensor_file.checksum_of = own

    def library() -> None:
        save_file(tensors, folder / "b")

    def checked() -> None:
        tensors_are_whole(tensors, {"checksum": ""})

    def read() -> None:
        sum(float(value.sum()) for value in load_file(folder / "b").values())

    ways: dict[str, Callable[[], Any]] = {
        **{"written as a run does": as_a_run, "written without a checksum": without},
        **{"written by the library, not brought to the disk": library, "read by the library": read},
        "checked after reading": checked,
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            way()
            spent[name].append(1000 * (time.process_time() - start))
    return {name: round(statistics.median(own), 1) for name, own in spent.items()}


if __name__ == "__main__":
    main()
