"""A trainer on a GPU, ready for its first step."""

from __future__ import annotations

from typing import Any

import torch

from vmcr2.data import open_data
from vmcr2.train import recipe
from vmcr2.train._loop import Trainer


def trainer(objective: str, **changes: Any) -> Trainer:
    settings = {"precision": "float32", "augmentation": "crop", "crop_padding": 1, "epochs": 4} | changes
    if objective == "mcr2 with a memory":
        objective, settings = "mcr2", {"batch_size": 400, "memory": 900} | settings  # full in the third step
    config = recipe("digits", objective=objective, device="cuda", **settings)
    made = Trainer(config, open_data("digits"), torch.device("cuda"))
    made.network.train()
    made.objective.train()
    made.latch()
    return made
