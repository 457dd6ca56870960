"""Whole runs of several processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from digits_trainer import quick
from torch import nn

from vmcr2.distributed import ALONE, Ranks
from vmcr2.runs import Config, Run, fit
from vmcr2.training import Step

SEVEN = {"epochs": 7}
"""21 steps."""
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "vmcr2": ("vmcr2", {"average": 0.9}),
    "mcr2": ("mcr2", {"augmentation": "crop", "crop_padding": 1, "stream": "yes"}),
    "mcr2 with memory": ("mcr2", {"memory": 900}),
    "ce": ("ce", {"holdout": 200, "patience": 3}),
    "ce+mcr2": ("ce+mcr2", {"mix": "cutmix", "mix_until": 0.6}),
    "ce+vmcr2": ("ce+vmcr2", {"batch_size": 250}),
    "by classes": ("vmcr2", {"batch_size": 450, "samples_per_class": 50}),
}
STOPPED = "vmcr2"


def network() -> nn.Module:
    """BatchNorm, dropout and no ReLU: at 0 rounding would decide its gradient, and runs part by 1e-3."""
    hidden = [nn.Linear(64, 48), nn.BatchNorm1d(48), nn.Tanh(), nn.Dropout(0.2)]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(48, 32))


def configured(name: str) -> Config:
    objective, changes = RUNS[name]
    return quick(objective, **SEVEN | changes).replace(model="runs_of_ranks:network")


def run_of(name: str, out: Path, ranks: Ranks = ALONE, **how: Any) -> Run:
    return fit(configured(name), out=out, ranks=ranks, **how)


class Counting:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.epochs = 0

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs += 1


def run_cases(rank: int, folder: Path) -> dict[str, Any]:
    """In one of several processes; the runs are then in ``folder``."""
    ranks = Ranks(active=True)
    callback = Counting()
    summaries = {name: run_of(name, folder / name, ranks, callbacks=[callback]).summary for name in RUNS}
    return {"summaries": summaries, "stopped": stopped(rank, folder / "stopped", ranks), "told": callback.epochs}


def stopped(rank: int, out: Path, ranks: Ranks) -> int:
    """The last process alone hears a signal in the middle of an epoch: all stop, and go on later."""
    original, made = Step.__call__, 0

    def call(step: Step) -> None:
        nonlocal made
        original(step)
        made += 1
        if made == 4 and rank == ranks.count - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    Step.__call__ = call  # type: ignore[method-assign]
    try:
        run_of(STOPPED, out, ranks)
    except SystemExit as end:
        code = end.code
    finally:
        Step.__call__ = original  # type: ignore[method-assign]
    run_of(STOPPED, out, ranks, resume=True)
    assert isinstance(code, int)
    return code
