"""A stand-in for CIFAR-100 that a CPU can train in two minutes: an MLP on 8×8 pictures, to try ideas before a GPU does.

    VMCR2_DATA=~/data python experiments/stand_in.py --processes 2

The network is not the paper's, so that its figures are hints and not results: 40,000 training images averaged over 4×4
pixels, 10,000 held out of the training set to compare by, MLP 192-512-512-200 with BatchNorm, batch 2000, 40 epochs.
Lines that are in experiments/results/stand-in.jsonl are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from _pool import lost, make_all  # noqa: E402

from vmcr2.data import Source, Split, open_data  # noqa: E402
from vmcr2.sweep._runs import Job, Outcome, Runner  # noqa: E402
from vmcr2.train import Config, recipe  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "stand-in.jsonl"
_SHARED = {
    **{"holdout": 10_000, "epochs": 40, "batch_size": 2000, "lr": 0.3, "weight_decay": 2e-3, "schedule": "cosine"},
    **{"nesterov": True, "augmentation": "flip", "model": "mlp", "hidden": (512, 512), "image_size": 8, "dim": 200},
    **{"device": "cpu", "eval_every": 1000, "log_every": 20},
}
_VARIATIONAL = {
    **{"objective": "vmcr2", "loss_scale": 0.05, "weight": 20.0, "batch_expansion": 0.1, "debias": True},
    **{"atoms_per_class": 4, "latch_every": 20, "cap_codes_step": True},
}
_FLAT = {"codes": "flat", "atoms_per_class": 2, "codes_trace": 4.0}
_MEAN = {"average": 0.99, "schedule": "linear"}
_FRESH = {"fresh_statistics": True}
_NARROW = {**_MEAN, "dim": 100}
_CARRIED = {"objective": "mcr2", "memory": 20_000}

RUNS: list[dict[str, Any]] = [
    *({"objective": "ce", "lr": lr, "weight_decay": decay} for lr, decay in ((1.0, 5e-4), (2.0, 5e-4), (2.0, 1e-3))),
    *({"objective": "ce", "lr": 1.0, "weight_decay": 2e-3, "seed": seed} for seed in (0,)),
    {"weight_decay": 5e-4},
    *({"seed": seed} for seed in (0, 1)),
    *({"focus": 3.0, "seed": seed} for seed in (0, 1)),
    {"focus": 10.0},
    *({**_FLAT, "seed": seed} for seed in (0, 1)),
    *({**_FLAT, "focus": 3.0, "seed": seed} for seed in (0, 1)),
    {**_FLAT, "focus": 10.0},
    {**_FLAT, "latch_every": 5},
    {"objective": "ce", "lr": 2.0, "weight_decay": 5e-4, "seed": 1},
    {"seed": 2},
    *({"multiplier_rate": rate} for rate in (0.002, 0.005, 0.02)),
    *({"sharpness": radius} for radius in (0.05, 0.2)),
    {"objective": "ce", "lr": 2.0, "weight_decay": 5e-4, "sharpness": 0.2},
    *({"average": 0.99, "seed": seed} for seed in (0, 1)),
    *({"fresh_statistics": True, "seed": seed} for seed in (0, 1)),
    *({"fresh_statistics": True, **_FLAT, "focus": 3.0, "seed": seed} for seed in (0, 1)),
    *({"objective": "ce", "lr": 2.0, "weight_decay": 5e-4, "average": 0.99, "seed": seed} for seed in (0, 1)),
    # both sides averaged, and in a straight line
    *(
        {**_MEAN, "objective": "ce", "lr": lr, "weight_decay": 5e-4, "seed": seed}
        for lr in (2.0, 1.0)
        for seed in (0, 1)
    ),
    *({**_MEAN, **_FLAT, "focus": 3.0, **more, "seed": seed} for more in ({}, _FRESH) for seed in (0, 1)),
    *({**_MEAN, **more, "seed": seed} for more in ({}, {"focus": 1.0}, {"focus": 3.0}) for seed in (0, 1)),
    *({**_MEAN, **_FRESH, "focus": 3.0, "seed": seed} for seed in (0, 1)),
    # one dimension for each class: atoms, codes, the push, and exact MCR²
    _NARROW,
    *({**_NARROW, "atoms_per_class": atoms} for atoms in (2, 1)),
    *({**_NARROW, "codes": "flat", "atoms_per_class": 1, "codes_trace": trace} for trace in (2.0, 4.0)),
    {**_NARROW, **_FLAT, "focus": 3.0},
    *({**_NARROW, "batch_expansion": push} for push in (0.2, 0.5)),
    {**_NARROW, "loss_scale": 0.25},
    {**_NARROW, "objective": "mcr2", "lr": 0.1},
    *({**_NARROW, **_CARRIED, **more} for more in ({"lr": 0.1}, {}, {"weight_decay": 5e-4})),
    *({**_MEAN, **_CARRIED, **more} for more in ({}, {"weight_decay": 5e-4}, {"memory": 38000}, {"lr": 0.1})),
    {**_MEAN, "objective": "mcr2"},
]


class _Pooled:
    """The training images averaged over 4×4 pixels; the test images are out of reach."""

    image_shape = (3, 8, 8)

    def __init__(self, source: Source) -> None:
        self._source = source.training_only()
        whole = self._source.train()
        self._split = Split(torch.nn.functional.avg_pool2d(whole.images.float(), 4).round().byte(), whole.labels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def train(self) -> Split:
        """Small pictures."""
        return self._split


def open_pooled(config: Config) -> Source:
    """CIFAR-100 as small pictures, whatever path the configuration has."""
    return cast(Source, _Pooled(open_data(config.data)))


def config_of(changes: dict[str, Any]) -> Config:
    """The configuration of one of RUNS."""
    objective = changes.get("objective", "vmcr2")
    base = recipe(f"cifar100-{objective}-paper", **_SHARED)
    return base.replace(**({} if objective == "ce" else _VARIATIONAL) | changes)


def line_of(changes: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run."""
    kept = ("holdout_accuracy", "head_accuracy", "train_accuracy", "train_delta_r", "expansion", "compression")
    kept = (*kept, "variational_expansion", "variational_compression", "codes_trace", "effective_rank", "seconds")
    found = {name: figures[name] for name in kept if name in figures}
    return {
        "changes": changes,
        **found,
        "torch": figures["torch"],
        "config": dataclasses.asdict(config_of(changes)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """As the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(arguments)
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    todo = [changes for changes in RUNS if changes not in [line["changes"] for line in lines]]

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        jobs = {Job(config_of(changes), folder / str(i), False): changes for i, changes in enumerate(todo)}

        def ended(job: Job, outcome: Outcome, since: float) -> None:
            if lost(str(jobs[job]), outcome):
                return
            if "failed" in outcome.figures:
                print(f"no result: {jobs[job]}: {outcome.figures['failed']}")
                return
            lines.append(line := line_of(jobs[job], outcome.figures))
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")

        runner = partial(Runner, open_pooled)
        make_all(list(jobs), runner, ended, folder=folder, parallel=given.processes, seconds=math.inf, threads=1)
    for line in sorted(lines, key=lambda line: -line.get("head_accuracy", line["holdout_accuracy"])):
        shown = line.get("head_accuracy", line["holdout_accuracy"])
        print(f"{shown:.4f}  train {line['train_accuracy']:.3f}  ΔR {line['train_delta_r']:5.1f}  {line['changes']}")


if __name__ == "__main__":
    main()
