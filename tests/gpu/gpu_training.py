"""A trainer on a GPU, ready for its first step, and the engine that its settings ask for."""

from __future__ import annotations

from typing import Any

from digits_trainer import prepared

from vmcr2.runs import Trainer
from vmcr2.training import Engine


def trainer(objective: str, **changes: Any) -> Trainer:
    settings: dict[str, Any] = {"precision": "float32", "augmentation": "crop", "epochs": 4} | changes
    if settings["augmentation"] == "crop":
        settings = {"crop_padding": 1} | settings
    if objective == "mcr2 with a memory":
        objective, settings = "mcr2", {"batch_size": 400, "memory": 900} | settings  # full in the third step
    return prepared(objective, device="cuda", **settings)


def engine_of(made: Trainer, **more: Any) -> Engine:
    return Engine(made.step, capture=made.config.run.engine, **more)
