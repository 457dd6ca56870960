"""The three objectives behind one face: a module from features and labels to what the network minimises."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..functional import class_capacity
from ..losses import MCR2Loss, VMCR2Loss
from ._config import Config

SCHEDULED = ("mu", "weight", "batch_expansion", "nu_dictionary", "nu_codes")


class CrossEntropy(nn.Module):
    """Cross-entropy of a linear layer on the normalised feature, as in the paper (its parameters are trained too)."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, num_classes)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        return nn.functional.cross_entropy(self.head(z), labels)

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit."""
        logits: Tensor = self.head(z)
        return logits.argmax(1)


Objective = VMCR2Loss | MCR2Loss | CrossEntropy


def class_room(labels: Tensor, num_classes: int, rows: int) -> int | None:
    """``max_class_size`` for so many rows of a training set; None where the losses' own room, for even classes, does.

    Six deviations above the largest class's share are exceeded in one of a billion batches.
    """
    needed = class_capacity(rows * int(labels.bincount().max()) / len(labels), deviations=6.0)
    return needed if needed > class_capacity(rows / num_classes) else None


def build_objective(config: Config, labels: Tensor, num_classes: int) -> Objective:
    """The objective of a configuration. Values are not looked at in a step: what is wrong goes into ``fault``.

    ``labels`` are those of the training set. Rows are not normalised again: every network ends on the unit sphere.
    """
    if config.objective == "ce":
        return CrossEntropy(config.dim, num_classes)
    rows = min(config.batch_size, len(labels)) + config.memory
    fixed: dict[str, Any] = {
        "eps_sq": config.eps_sq,
        "max_class_size": class_room(labels, num_classes, rows),
        "normalize": False,
        "validate": False,
    }
    if config.objective == "mcr2":
        return MCR2Loss(num_classes, memory=config.memory, dim=config.dim, **fixed)
    return VMCR2Loss(
        num_classes,
        config.dim,
        atoms_per_class=config.atoms_per_class,
        mu=config.mu,
        weight=config.weight,
        nu_dictionary=config.nu_dictionary,
        nu_codes=config.nu_codes,
        batch_expansion=config.batch_expansion,
        scale=1.0,  # loss_scale is of every objective, and what is logged is in nats
        debias=config.debias,
        focus=config.focus,
        codes=config.codes,  # type: ignore[arg-type]
        codes_trace=config.codes_trace,
        cap_codes_step=config.cap_codes_step,
        **fixed,
    )


def look_ahead(objective: Objective, labels: Tensor) -> Any:
    """What :func:`surrogate` needs of the labels alone, to be made while the network computes."""
    return None if isinstance(objective, CrossEntropy) else objective.look_ahead(labels)


def surrogate(objective: Objective, config: Config, z: Tensor, labels: Tensor, ahead: Any) -> Tensor:
    """What a training step differentiates; for the rate reductions without its value."""
    if isinstance(objective, VMCR2Loss):
        feels_expansion = config.batch_expansion > 0 or (config.batch_expansion_end or 0.0) > 0
        return objective.surrogate(z, labels, ahead, with_expansion=feels_expansion)
    if isinstance(objective, MCR2Loss):
        return objective.surrogate(z, labels, ahead)
    loss: Tensor = objective(z, labels)
    return loss


def set_schedules(objective: Objective, config: Config, progress: float) -> None:
    """Assign what changes along the run; ``progress`` runs from 0 to 1."""
    if not isinstance(objective, VMCR2Loss):
        return
    for name in SCHEDULED:
        start, end = getattr(config, name), getattr(config, f"{name}_end")
        if start is not None and end is not None:
            setattr(objective, name, start + (end - start) * progress)


def fault_of(objective: Objective, device: torch.device) -> Tensor:
    """The device flag of the objective; cross-entropy has none."""
    if isinstance(objective, CrossEntropy):
        return torch.zeros((), dtype=torch.bool, device=device)
    return objective.fault
