"""The learning rate along a run."""

from __future__ import annotations

import math

from ._config import Config


def learning_rate(config: Config, step: int, steps_per_epoch: int) -> float:
    """The rate of a step, counted from 0: warm-up in a straight line, then the schedule over what is left."""
    warmup = config.warmup_epochs * steps_per_epoch
    total = config.epochs * steps_per_epoch
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(total - warmup, 1)
    if config.schedule == "cosine":
        return config.lr * math.pow(0.5 * (1 + math.cos(math.pi * progress)), config.decay_power)
    if config.schedule == "linear":
        return config.lr * math.pow(1 - progress, config.decay_power)
    if config.schedule == "step":
        return config.lr * 0.1 ** sum(step >= part * total for part in config.milestones)
    return config.lr
