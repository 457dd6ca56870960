"""Seconds per epoch of every objective with the paper's network, by the trainer's own engine, on random images.

An epoch is the trainer's: order, augmentation, steps, the check that all is finite; without latching, which falls due
every 50 epochs, and without the metrics that are made now and then.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

import torch

from ..data import DATASETS, Part, Reader, Source, Split
from ..runs import Config, Trainer, recipe
from ._measure import Say, caption, environment, sentence, silent

CARRIED = 40_000
"""Past rows from which the recipes of CIFAR-100 and Tiny ImageNet take their class statistics."""
DATA = ("mnist", "cifar10", "cifar100", "tiny-imagenet")


class Contender(NamedTuple):
    """An objective, and what it is called in the table."""

    title: str
    objective: str
    changes: dict[str, Any]


CONTENDERS = (
    Contender("CE", "ce", {}),
    Contender("MCR², exact, plain", "mcr2", {"memory": 0}),
    Contender(f"MCR², exact, {CARRIED:,} rows carried", "mcr2", {"memory": CARRIED}),
    Contender("V-MCR², Eq. 7", "vmcr2", {"batch_expansion": 0.0}),
    Contender("V-MCR² with R(z)", "vmcr2", {"batch_expansion": 0.1}),
)


class _RandomImages(Reader):
    """Images and labels without meaning, of a data set's size; 32×32 at most, as the networks see them."""

    def __init__(self, data: str, images: int | None) -> None:
        self.info = DATASETS[data]
        self.count = min(images or self.info.train_size, self.info.train_size)
        channels, height, width = self.info.image_shape
        shape = (channels, min(height, 32), min(width, 32))
        super().__init__(None, tuple(f"class {j}" for j in range(self.info.classes)), shape)

    def load(self, part: Part) -> Split:
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (self.count, *self.shape), dtype=torch.uint8, generator=generator)
        return Split(pixels, torch.arange(self.count) % self.info.classes)


def source_of(data: str, images: int | None = None) -> Source:
    """Random images in the place of a data set."""
    reader = _RandomImages(data, images)
    return Source(data, None, reader.class_names, reader)


def measure(
    config: Config, source: Source, *, epochs: int = 5, device: torch.device, budget: float = 30.0
) -> dict[str, Any]:
    """Epochs of one configuration after a first one, in which kernels are chosen, compiled and captured."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    trainer = Trainer(config, source, device)
    said: list[str] = []
    loop = trainer.loop(images=10**9, say=said.append)
    engine = loop.engine
    loop.latch_if_due(0)
    trainer.step.begin(0)
    trainer.step.index.copy_(loop.order(0)[: trainer.batch_size])
    ready = None
    while ready is None:
        engine()
        if engine.captured or not engine.captures:
            _wait(device)
            ready = time.perf_counter() - start
    seconds: list[float] = []
    for epoch in range(1 + epochs):
        begun = time.perf_counter()
        loop.train_epoch(epoch)
        _wait(device)
        seconds.append(time.perf_counter() - begun)
        if sum(seconds) > budget and epoch >= 1:
            break
    timed = seconds[1:]
    return {
        "seconds_per_epoch": statistics.median(timed),
        "fastest": min(timed),
        "slowest": max(timed),
        "epochs": len(timed),
        "images": loop.steps_per_epoch * trainer.batch_size,
        "milliseconds_per_step": 1e3 * statistics.median(timed) / loop.steps_per_epoch,
        "seconds_to_first_step": ready,
        "captured": engine.captured,
        "notes": said,
        "peak_mib": torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run(
    device: torch.device,
    *,
    data: tuple[str, ...] | None = None,
    images: int | None = None,
    epochs: int = 5,
    say: Say = silent,
) -> dict[str, Any]:
    """Everything that `vmcr2 bench epoch` measures; on a CPU two batches of images, of MNIST alone, unless said."""
    results = []
    for name in data or (DATA if device.type == "cuda" else DATA[:1]):
        for title, objective, changes in CONTENDERS:
            config = recipe(name, objective=objective)
            config = config.replace(device=device.type, epochs=10**6, **changes)
            count = images or (None if device.type == "cuda" else 2 * config.optim.batch_size)
            say(f"{name}, {title}: {count or 'all'} images an epoch")
            row: dict[str, Any] = {"data": name, "contender": title, "compiled": False}
            try:
                row |= measure(config, source_of(name, count), epochs=epochs, device=device)
            except RuntimeError as error:  # out of memory: the others go on
                row["failed"] = sentence(error)
            results.append(row)
    return {"benchmark": "epoch", "environment": environment(device), "results": results}


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, with each objective's ratio to cross-entropy beside it."""
    headings = [
        "data",
        "objective",
        "images",
        "s per epoch (min–max)",
        "/ CE",
        "ms per step",
        "to first step, s",
        "peak MiB",
    ]
    lines = [caption(record["environment"]) + ".", "", "| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    reference: dict[tuple[str, bool], float] = {}
    for row in record["results"]:
        data = row["data"] + (", compiled" if row["compiled"] else "")
        if "failed" in row:
            lines.append(f"| {data} | {row['contender']} | – | {row['failed']} | – | – | – | – |")
            continue
        seconds = row["seconds_per_epoch"]
        base = reference.setdefault((row["data"], row["compiled"]), seconds)
        cells = [
            data,
            row["contender"],
            f"{row['images']:,}",
            f"{seconds:.4f} ({row['fastest']:.4f}–{row['slowest']:.4f})",
            f"{seconds / base:.2f}",
            f"{row['milliseconds_per_step']:.2f}",
            f"{row['seconds_to_first_step']:.1f}",
            "–" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
