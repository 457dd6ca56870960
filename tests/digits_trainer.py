"""Quick runs on digits, a trainer ready for its first step, and what tests of steps look at."""

from __future__ import annotations

from typing import Any

import torch
from seeds import SEED
from torch import Tensor

from vmcr2.data import open_data
from vmcr2.runs import Config, Trainer, recipe

CPU = torch.device("cpu")
TOTAL = 1437
"""training images"""


def quick(objective: str = "vmcr2", **changes: Any) -> Config:
    """A run of a second: few epochs, a small network, a checkpoint after every epoch."""
    small: dict[str, Any] = {"epochs": 6, "eval_every": 2, "checkpoint_seconds": 0.0, "hidden": (32,), "dim": 32}
    if "vmcr2" in objective:
        small["atoms_per_class"] = 3
    return recipe("digits", objective=objective, device="cpu", **{**small, "seed": SEED, **changes})


def prepared(objective: str, device: str = "cpu", **settings: Any) -> Trainer:
    """In training mode, latched where the objective latches. Settings are those of the recipe, or these."""
    config = recipe("digits", objective=objective, device=device, **{"calibration_share": 0.0} | settings)
    made = Trainer(config, open_data("digits"), torch.device(device))
    made.step.begin(0)
    made.objective.latch(made.step.embed(), made.step.samples.labels)
    return made


def feed(made: Trainer, draw: int) -> None:
    """A batch of its own for every ``draw``."""
    order = torch.randperm(TOTAL, generator=torch.Generator().manual_seed(draw))
    made.step.index.copy_(order[: made.batch_size])
    made.step.draw.fill_(draw)


def train(made: Trainer, draw: int) -> None:
    """A step on that batch."""
    feed(made, draw)
    made.step()


def weights_of(made: Trainer) -> list[Tensor]:
    """Of the network and of the objective's head, as they are now."""
    return [value.detach().clone() for value in made.step.parameters]


RUN_FILES = {
    ".lock",
    "calibration.safetensors",
    "config.json",
    "manifest.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "objective.safetensors",
    "subspaces.safetensors",
    "evaluation.safetensors",
    "kept_samples.safetensors",
    "checkpoint/last.safetensors",
}
"""What a finished run of V-MCR² leaves in its folder, if it had one checkpoint."""
