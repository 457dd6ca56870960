"""What an epoch is timed of: objectives with the paper's networks, and the trainer's own loop over them."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any, NamedTuple

import torch

from ..data import Source
from ..runs import Config, Trainer, recipe
from ..training import Loop

CARRIED = 40_000
"""Past rows from which the recipes of CIFAR-100 and Tiny ImageNet take their class statistics."""


class Contender(NamedTuple):
    """An objective, and what it is called in the table."""

    title: str
    objective: str
    changes: dict[str, Any]


CE = Contender("CE", "ce", {})
PLAIN = Contender("MCR², exact, plain", "mcr2", {"memory": 0})
CARRYING = Contender(f"MCR², exact, {CARRIED:,} rows carried", "mcr2", {"memory": CARRIED})
EQ_7 = Contender("V-MCR², Eq. 7", "vmcr2", {"batch_expansion": 0.0})
WITH_RATE = Contender("V-MCR² with R(z)", "vmcr2", {"batch_expansion": 0.1})
CONTENDERS = (CE, PLAIN, CARRYING, EQ_7, WITH_RATE)
COMPOSED = (
    Contender("CE + MCR², exact, plain", "ce+mcr2", {"memory": 0}),
    Contender("CE + V-MCR² with R(z)", "ce+vmcr2", {"batch_expansion": 0.1}),
)
ROWS = {
    "mnist": CONTENDERS,
    "cifar10": CONTENDERS,
    "cifar100": (*CONTENDERS, *COMPOSED),
    "cifar100-preact": (CE, WITH_RATE),
    "tiny-imagenet": CONTENDERS,
}
"""The objectives of each group of rows: a data set with the paper's network, or with PreAct ResNet-18."""
DATA = tuple(ROWS)


def configuration(name: str, contender: Contender, device: torch.device) -> Config:
    """The recipe of a row. All images are trained on, and no epoch is near the last."""
    fixed: dict[str, Any] = {"device": device.type, "compile": "no", "calibration_share": 0.0}
    config = recipe(name, objective=contender.objective, **fixed)
    return config.replace(epochs=10**6, **contender.changes)


def until_replayed(loop: Loop) -> None:
    """A run's latching and first steps, to the first one that is replayed; to the first of all if none can be."""
    engine = loop.engine

    def reached(*_: int) -> bool:
        return engine.captured or not engine.captures

    loop.run(0, ended=reached, asked_to_stop=reached)


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def allocated(device: torch.device) -> int:
    """Bytes that are in use on a GPU now. The peak counts from here on."""
    gc.collect()  # trainers hold themselves by cycles: one that is done would count
    if device.type != "cuda":
        return 0
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_mib(device: torch.device, before: int = 0) -> float | None:
    """The peak of memory on a GPU without the bytes that were in use ``before``; None on a CPU."""
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20 if device.type == "cuda" else None


class Epochs:
    """A configuration that is past its first epoch, in which kernels are chosen, compiled and captured.

    Several may be ready at once and be timed in turn: memory of the others is not counted.
    """

    def __init__(self, config: Config, source: Source, device: torch.device) -> None:
        self._device = device
        self._notes: list[str] = []
        before = allocated(device)
        start = time.perf_counter()
        self._trainer = Trainer(config, source, device)
        self._loop = self._trainer.loop(images=10**9, say=self._notes.append)
        until_replayed(self._loop)
        wait(device)
        self._ready = time.perf_counter() - start
        self._made = 0
        self.seconds: list[float] = []
        """Of the epochs that were timed."""
        self._epoch()
        self._peak_mib = peak_mib(device, before)

    def time_one(self) -> None:
        """One more epoch."""
        self.seconds.append(self._epoch())

    def _epoch(self) -> float:
        begun = time.perf_counter()
        self._loop.train_epoch(self._made)
        wait(self._device)
        self._made += 1
        return time.perf_counter() - begun

    def row(self) -> dict[str, Any]:
        """The figures of the epochs that were timed."""
        median, steps = statistics.median(self.seconds), self._loop.steps_per_epoch
        return {
            "seconds_per_epoch": median,
            "fastest": min(self.seconds),
            "slowest": max(self.seconds),
            "epochs": len(self.seconds),
            "images": steps * self._trainer.batch_size,
            "milliseconds_per_step": 1e3 * median / steps,
            "seconds_to_first_step": self._ready,
            "captured": self._loop.engine.captured,
            "notes": self._notes,
            "peak_mib": self._peak_mib,
        }
