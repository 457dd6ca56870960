"""Says when training has not given class subspaces, instead of leaving it to be found out."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from .._shared import CollapseWarning
from ..functional import diagnose, rate_reduction
from ..inference import Array
from ._training import Plan
from ._undo import CALLER

_ADVICE = (
    "Try a smaller lr or more epochs, then a smaller weight_decay. If that does not help, the columns may say nothing "
    "about the classes."
)


def warn_of_bad_features(z: Array, labels: Array, plan: Plan) -> None:
    """One warning if the features of the training samples are collapsed or stalled. Cross-entropy alone has no rate."""
    if not plan.objective.separates:
        return
    sizes = np.bincount(labels, minlength=plan.num_classes)
    rates = rate_reduction(torch.as_tensor(z), torch.as_tensor(labels), plan.num_classes, eps_sq=plan.objective.eps_sq)
    found = diagnose(
        float(rates.expansion),
        float(rates.compression),
        num_classes=plan.num_classes,
        dim=plan.dim,
        eps_sq=plan.objective.eps_sq,
        proportions=sizes.tolist(),
    )
    if found is not None:
        warnings.warn(f"the features are {found}. {_ADVICE}", CollapseWarning, stacklevel=CALLER)
