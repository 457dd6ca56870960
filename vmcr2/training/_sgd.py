"""SGD by torch's fused kernel, with the learning rate in a tensor. ``torch.optim`` gives the same bits.

Making an optimiser of ``torch.optim`` imports torch's compiler, which takes seconds that a run does not need.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SGD:
    """Momentum, Nesterov's or the usual one, and weight decay, over groups of parameters.

    Args:
        groups: dicts with ``params``, ``lr`` (a tensor), ``weight_decay``, and whatever a caller keeps there.
        momentum: 0 for none.
        nesterov: look ahead along the momentum.
    """

    def __init__(self, groups: list[dict[str, Any]], *, momentum: float, nesterov: bool) -> None:
        self.param_groups = groups
        self.momentum, self.nesterov = momentum, nesterov
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        """``momentum_buffer`` of each parameter that has made a step."""

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            for dtype in {parameter.dtype for parameter in moving}:  # on a GPU the kernel takes one type at a time
                alike = [parameter for parameter in moving if parameter.dtype == dtype]
                begun = [parameter for parameter in alike if parameter in self.state]
                new = [parameter for parameter in alike if parameter not in self.state]
                self._move(group, begun, first=False)
                self._move(group, new, first=True)

    def _move(self, group: dict[str, Any], parameters: list[Tensor], *, first: bool) -> None:
        if not parameters:
            return
        if first and self.momentum:
            for parameter in parameters:  # the first step sets it to the gradient
                self.state[parameter] = {"momentum_buffer": torch.empty_like(parameter)}
        torch._fused_sgd_(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [self.state[parameter]["momentum_buffer"] for parameter in parameters] if self.momentum else [],
            weight_decay=group["weight_decay"],
            momentum=self.momentum,
            lr=group["lr"],
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=first and self.momentum > 0,
        )
