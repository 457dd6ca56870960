"""A guard for work beside the main CUDA stream."""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import Guard


class BranchGuard:
    """A guard with a flag of its own: two streams must not write one flag at the same time."""

    def __init__(self, like: Tensor, guard: Guard) -> None:
        self._outer = guard
        self._flag = torch.zeros((), dtype=torch.bool, device=like.device)
        self.guard = Guard(guard.validate, self._flag, guard.synchronises)

    def report(self) -> None:
        """Pass the flag on to the outer guard; call it after the join."""
        if self._outer.fault is not None:
            self._outer.fault.logical_or_(self._flag)
