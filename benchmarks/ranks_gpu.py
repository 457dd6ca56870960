"""Is a run of one process over nccl as fast as a plain run? And what does BatchNorm over several processes cost?

Three ways to make the same epochs, in turn, round after round: a plain run; one process whose features and gradients
go through nccl inside the CUDA graph; and the same with BatchNorm as several processes have it, by torch's kernels for
synchronised statistics in the place of our fused ones.

Run:    torchrun --standalone --nproc-per-node 1 benchmarks/ranks_gpu.py --json benchmarks/results/ranks-h200.json
On:     one GPU; about two minutes
Result: docs/scaling.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from vmcr2.bench._images import random_source
from vmcr2.distributed import ALONE, Ranks, WholeBatch, joined
from vmcr2.runs import Trainer, recipe
from vmcr2.training import Loop

CASES = (("cifar10", "vmcr2"), ("cifar100", "vmcr2"), ("cifar100", "mcr2"), ("cifar100", "ce"), ("mnist", "vmcr2"))


class AsOneOfMany(Ranks):
    """One process that computes BatchNorm as if there were more."""

    def whole_batch(self, total: int) -> AbstractContextManager[None]:
        """Entered also by one process."""
        return WholeBatch(self.share(total), total)


def loops(data: str, objective: str, images: int | None, device: torch.device) -> dict[str, Loop]:
    """A loop for each way, captured, with one epoch behind it."""
    ways = {"plain": ALONE, "nccl": Ranks(active=True), "nccl, BatchNorm of many": AsOneOfMany(active=True)}
    config = recipe(data, objective=objective, compile="no").replace(device="cuda", epochs=10**6)
    made = {}
    for name, ranks in ways.items():
        said: list[str] = []
        trainer = Trainer(config, random_source(data, images), device, ranks=ranks)
        loop = trainer.loop(images=10**9, say=said.append)
        loop.latch_if_due(0)
        loop.train_epoch(0)
        if not loop.engine.captured:
            print(f"{data}, {objective}, {name}: NOT captured: {said}")
        made[name] = loop
    return made


def compare(data: str, objective: str, images: int | None, rounds: int, device: torch.device) -> dict[str, Any]:
    """Seconds per epoch of each way, in turn."""
    made = loops(data, objective, images, device)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for number in range(1, rounds + 1):
        for name, loop in made.items():
            torch.cuda.synchronize(device)
            start = time.perf_counter()
            loop.train_epoch(number)
            torch.cuda.synchronize(device)
            seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "data": data,
        "objective": objective,
        "batch": made["plain"].batch_size,
        "captured": {name: loop.engine.captured for name, loop in made.items()},
        "seconds_per_epoch": median,
        "speed": {name: median["plain"] / value for name, value in median.items()},
    }


def main() -> None:
    """Print a line for each case: the speeds as parts of the plain run's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, help="fewer images in an epoch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="where to write the record")
    given = parser.parse_args()
    with joined() as ranks:
        if not ranks.active or ranks.count > 1:
            raise SystemExit("start it with torchrun --standalone --nproc-per-node 1")
        device = ranks.place(torch.device("cuda"))
        results = []
        for data, objective in CASES:
            results.append(compare(data, objective, given.images, given.rounds, device))
            print(json.dumps(results[-1]), flush=True)
    record = {"benchmark": "ranks on a GPU", "environment": torch.cuda.get_device_name(), "torch": torch.__version__}
    if given.json:
        given.json.write_text(json.dumps(record | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
