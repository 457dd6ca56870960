"""The network's optimiser."""

from __future__ import annotations

import torch
from torch import Tensor

from ._settings import OptimSettings


def build_optimizer(optim: OptimSettings, parameters: list[Tensor], rate: Tensor) -> torch.optim.Optimizer:
    """Fused, with its rate in a tensor: a captured step reads it at every replay."""
    if optim.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=optim.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=optim.momentum,
        weight_decay=optim.weight_decay,
        nesterov=optim.nesterov,
        fused=True,
    )
