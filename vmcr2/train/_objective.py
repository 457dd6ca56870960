"""The three objectives behind one face: a module from features and labels to what the network minimises."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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

    def surrogate(self, z: Tensor, labels: Tensor, ahead: None = None) -> Tensor:
        """What a training step differentiates: here the loss itself."""
        return nn.functional.cross_entropy(self.head(z), labels)

    def look_ahead(self, labels: Tensor) -> None:
        """Nothing of cross-entropy can be made before the features."""

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit."""
        logits: Tensor = self.head(z)
        return logits.argmax(1)


Objective = VMCR2Loss | MCR2Loss | CrossEntropy


def build_objective(config: Config, num_classes: int) -> Objective:
    """The objective of a configuration. Values are not looked at in a step: what is wrong goes into ``fault``.

    Rows are not normalised again: every network ends on the unit sphere.
    """
    if config.objective == "ce":
        return CrossEntropy(config.dim, num_classes)
    if config.objective == "mcr2":
        return MCR2Loss(num_classes, eps_sq=config.eps_sq, normalize=False, validate=False)
    return VMCR2Loss(
        num_classes,
        config.dim,
        atoms_per_class=config.atoms_per_class,
        eps_sq=config.eps_sq,
        mu=config.mu,
        weight=config.weight,
        nu_dictionary=config.nu_dictionary,
        nu_codes=config.nu_codes,
        batch_expansion=config.batch_expansion,
        debias=config.debias,
        codes=config.codes,
        cap_codes_step=config.cap_codes_step,
        normalize=False,
        validate=False,
    )


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
