"""The learning rate along a run."""

from __future__ import annotations

import math

from ._settings import OptimSettings


def learning_rate(optim: OptimSettings, step: int, steps_per_epoch: int) -> float:
    """The rate of a step, counted from 0: warm-up in a straight line, then the schedule over the rest."""
    warmup = optim.warmup_epochs * steps_per_epoch
    total = optim.epochs * steps_per_epoch
    if step < warmup:
        return optim.lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(total - warmup, 1)
    if optim.schedule == "cosine":
        return optim.lr * (0.5 * (1 + math.cos(math.pi * progress)))
    if optim.schedule == "linear":
        return optim.lr * (1 - progress)
    if optim.schedule == "step":
        return optim.lr * 0.1 ** sum(step >= part * total for part in optim.milestones)
    return optim.lr
