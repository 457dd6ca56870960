"""Sharpness-aware steps (Foret et al., ICLR 2021): the gradient is taken uphill of the weights, and used at them.

So the steps look for minima whose surroundings are low too. The price is a second pass through the network in every
step. docs/recipe.md has what it brings here: little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Sharpness:
    """Where the weights are, and ``radius`` uphill of there, in buffers that a captured step can keep.

    Args:
        network: with its parameters where they will stay.
        objective: likewise, and latched where it latches; cross-entropy's head climbs too.
        radius: the length of the step uphill in all weights together.
    """

    def __init__(self, network: nn.Module, objective: nn.Module, radius: float) -> None:
        self.radius = radius
        self._weights: list[Tensor] = [*network.parameters(), *objective.parameters()]
        self._here = [weight.detach().clone() for weight in self._weights]
        # but for its fault, which the first pass may find as well
        self._state = [value for name, value in objective.named_buffers() if name != "fault"]
        self._norms = [part for part in network.modules() if isinstance(part, _BatchNorm)]

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """For the first pass: what the objective learns in it is forgotten, or it would learn every batch twice."""
        before = [value.clone() for value in self._state]
        try:
            yield
        finally:
            with torch.no_grad():
                for value, own in zip(self._state, before, strict=True):
                    value.copy_(own)

    @contextmanager
    def uphill(self) -> Iterator[None]:
        """For the second pass, after the first one's gradients; then the weights are where they were.

        BatchNorm's running statistics are of the weights themselves: those of the first pass stay.
        """
        momenta = [norm.momentum for norm in self._norms]
        for norm in self._norms:
            norm.momentum = 0.0
        try:
            self._climb()
            yield
        finally:
            for norm, momentum in zip(self._norms, momenta, strict=True):
                norm.momentum = momentum
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._here)

    @torch.no_grad()
    def _climb(self) -> None:
        torch._foreach_copy_(self._here, self._weights)
        gradients = [torch.zeros_like(own) if own.grad is None else own.grad for own in self._weights]
        length = torch.stack(torch._foreach_norm(gradients)).norm()
        part: Tensor = self.radius / length.clamp_min(1e-12)  # a gradient of nothing leads nowhere
        torch._foreach_add_(self._weights, torch._foreach_mul(gradients, part))
