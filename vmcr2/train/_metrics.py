"""The line of metrics of an epoch: made outside the step, so that the step computes nothing that only a log reads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..functional import mismatch, rate_reduction
from ..losses import VMCR2Loss
from ._config import Config
from ._objective import CrossEntropy, class_room
from ._step import Step

_LINES = 100


def due(config: Config, epoch: int) -> bool:
    """Whether an epoch, counted from 1, has a line: every ``log_every``-th, the first and the last."""
    every = config.log_every or math.ceil(config.epochs / _LINES)
    return epoch % every == 0 or epoch in (1, config.epochs)


@torch.no_grad()
def batch_rates(step: Step, num_classes: int) -> dict[str, float]:
    """The loss and its parts on the epoch's last batch, whose features were made in training mode."""
    z, labels = step.features, step.seen
    objective = step.objective
    fixed: dict[str, Any] = {"max_class_size": class_room(step.host_labels, num_classes, len(z)), "validate": False}
    rates = rate_reduction(z, labels, num_classes, eps_sq=step.config.eps_sq, **fixed)
    figures = {
        "loss": -rates.delta,
        "expansion": rates.expansion,
        "compression": rates.compression,
        "batch_delta_r": rates.delta,
    }
    if isinstance(objective, CrossEntropy):
        figures["loss"] = objective(z, labels)
    if isinstance(objective, VMCR2Loss):
        parts = objective.terms(z, labels)
        figures |= {
            "loss": -parts.objective - objective.batch_expansion * parts.expansion,
            "variational_expansion": parts.variational_expansion,
            "variational_compression": parts.variational_compression,
            "mismatch": mismatch(z, labels, objective.dictionary, objective.codes, method="precise", **fixed),
            "codes_trace": objective.codes.sum(0).mean(),
        }
    values = torch.stack([value.double() for value in figures.values()]).tolist()  # one synchronisation for all
    return dict(zip(figures, values, strict=True))


def what_broke(step: Step, num_classes: int) -> str:
    """Which terms are not finite on the batch that broke first, once one is known to have."""
    if not _finite(step.features):
        return "the features: the network's weights or activations overflowed"
    figures: dict[str, Any] = batch_rates(step, num_classes)
    wrong = [name for name, value in figures.items() if not math.isfinite(value)]
    if isinstance(step.objective, VMCR2Loss):
        wrong = [name for name in ("dictionary", "codes") if not _finite(getattr(step.objective, name))] + wrong
    if wrong:
        return ", ".join(wrong)
    return "the gradient of the loss, or a factorisation in it; the terms themselves are finite"


def _finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())
