"""A trainer on digits and a CPU, ready for its first step, and what tests of steps look at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vmcr2.data import open_data
from vmcr2.train import recipe
from vmcr2.train._loop import Trainer

CPU = torch.device("cpu")


def prepared(objective: str, **settings: Any) -> Trainer:
    made = Trainer(recipe("digits", objective=objective, device="cpu", **settings), open_data("digits"), CPU)
    made.network.train()
    made.latch()
    return made


def train(made: Trainer, draw: int) -> None:
    """A step on a batch of its own."""
    order = torch.randperm(1437, generator=torch.Generator().manual_seed(draw))
    made.step.index.copy_(order[: made.batch_size])
    made.step.draw.fill_(draw)
    made.step()


def weights_of(made: Trainer) -> list[Tensor]:
    return [value.detach().clone() for value in [*made.network.parameters(), *made.objective.parameters()]]
