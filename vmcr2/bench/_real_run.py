"""A real run against the bench: does `vmcr2.fit` train as many images per second as the epochs that are timed?

Counted are the epochs' steps after the first epoch, as the run's metrics say. Not counted are latching, lines of
metrics, checkpoints and the evaluation. The pictures are 64×64, as Tiny ImageNet's are, and the recipe makes them
smaller; those of the bench are 32×32.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from ..data import Source
from ..runs import Callback, RunFolder, fit, recipe
from ._epochs import CE, WITH_RATE, allocated, peak_mib
from ._images import random_source
from ._measure import Say, sentence, silent

DATA = "tiny-imagenet"
CONTENDERS = (CE, WITH_RATE)
EPOCHS = 12


class _Stop(Callback):
    """Ends a run after some epochs. So it begins as a run of the recipe's length: that decides if cuDNN searches."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self.notes: list[str] = []

    def epoch(self, record: dict[str, Any]) -> bool:
        return bool(record["epoch"] >= self._epochs)

    def note(self, text: str) -> None:
        self.notes.append(text)


def measure(objective: str, source: Source, device: torch.device, epochs: int) -> dict[str, Any]:
    """The speed of a run in a folder that is removed afterwards."""
    config = recipe(DATA, objective=objective, device=device.type, calibration_share=0.0, log_every=1)
    before, stop = allocated(device), _Stop(epochs)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        run = fit(config, out=folder.path, source=source, callbacks=[stop], for_report=False)
        lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    speeds = [line["images_per_second"] for line in lines[1:]]
    return {
        "images_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
        "epochs": len(speeds),
        "train_images": run.summary["train_images"],
        "notes": stop.notes,
        "peak_mib": peak_mib(device, before),
    }


def run(
    device: torch.device,
    rows: list[dict[str, Any]],
    *,
    images: int | None = None,
    epochs: int = EPOCHS,
    say: Say = silent,
) -> list[dict[str, Any]]:
    """A run of each objective, beside its row of the bench in ``rows``."""
    source = random_source(DATA, images, largest=None)
    found = []
    for title, objective, _ in CONTENDERS:
        say(f"{DATA}, {title}: a real run of {epochs} epochs")
        result: dict[str, Any] = {"data": DATA, "contender": title}
        try:
            result |= measure(objective, source, device, epochs)
        except RuntimeError as error:  # out of memory: the others go on
            result["failed"] = sentence(error)
        bench = next((row for row in rows if (row["data"], row["contender"]) == (DATA, title)), {})
        if "seconds_per_epoch" in bench and "failed" not in result:
            speed = bench["images"] / bench["seconds_per_epoch"]
            result |= {"bench_images_per_second": speed, "ratio": result["images_per_second"] / speed}
        found.append(result)
    return found
