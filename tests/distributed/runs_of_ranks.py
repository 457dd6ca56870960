"""Whole runs of several processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from digits_trainer import quick
from torch import nn

import vmcr2
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
    "ce+mcr2": ("ce+mcr2", {}),
    "ce+vmcr2": ("ce+vmcr2", {"batch_size": 250}),
    "dropout": ("vmcr2", {"model": "runs_of_ranks:with_dropout"}),
}
STOPPED = "vmcr2"


def with_dropout() -> nn.Module:
    """A network with dropout and BatchNorm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Dropout(0.5), vmcr2.models.MLP(64, 32, batch_norm=True))


def configured(name: str) -> Config:
    objective, changes = RUNS[name]
    if "model" in changes:
        return quick(objective, **SEVEN).replace(**changes)
    return quick(objective, **SEVEN | changes)


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
