"""Notices features that stay collapsed in somebody's own loop, and says so once."""

from __future__ import annotations

import warnings

from torch import Tensor

from .._shared import CollapseWarning
from ..functional import Classes, diagnose

# A slow start is no collapse: the first calls do not count, and one batch alone says little.
FIRST_CALLS = 200
IN_A_ROW = 20

ADVICE = (
    "Try a smaller learning rate or AdamW(lr=1e-3), a BatchNorm layer in the network, a larger batch, or warm-up; "
    "see docs/faq.md."
)


class CollapseWatch:
    """Counts the training calls of a loss whose batch is collapsed."""

    def __init__(self) -> None:
        self._calls = 0
        self._collapsed = 0
        self._warned = False

    def look(self, expansion: Tensor, classes: Classes, *, dim: int, eps_sq: float) -> None:
        """R of the batch of a training call. Reading it waits for the device, so only where values are checked."""
        self._calls += 1
        if self._warned or self._calls <= FIRST_CALLS:
            return
        found = diagnose(
            float(expansion),
            None,
            num_classes=classes.num_classes,
            dim=dim,
            eps_sq=eps_sq,
            proportions=classes.proportions.tolist(),
        )
        self._collapsed = self._collapsed + 1 if found else 0
        if found and self._collapsed >= IN_A_ROW:
            self._warned = True
            warnings.warn(
                f"after {self._calls} calls the features are {found}. {ADVICE}", CollapseWarning, stacklevel=2
            )
