"""Sharpness-aware steps (Foret et al., ICLR 2021): the gradient is taken uphill of the weights, and used at them.

So the steps look for minima whose surroundings are low too. The price is a second pass through the network in every
step. docs/recipe.md has what it brings here: little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from ._keeping import keeping_momenta, keeping_values, running_norms


class Sharpness:
    """The two passes of a step: one where the weights are, one ``radius`` uphill of there.

    Args:
        network: with its parameters where they will stay.
        objective: likewise, and latched where it latches; cross-entropy's head climbs too.
        radius: the length of the step uphill in all weights together.
    """

    def __init__(self, network: nn.Module, objective: nn.Module, radius: float) -> None:
        self.radius = radius
        self._weights: list[Tensor] = [*network.parameters(), *objective.parameters()]
        # but for its fault, which the first pass may find as well
        self._state = [value for name, value in objective.named_buffers() if name != "fault"]
        self._norms = running_norms(network)

    def ahead(self) -> AbstractContextManager[None]:
        """For the first pass: what the objective learns in it is forgotten, or it would learn every batch twice."""
        return keeping_values(self._state)

    @contextmanager
    def uphill(self) -> Iterator[None]:
        """For the second pass, after the first one's gradients; then the weights are where they were.

        BatchNorm's running statistics are of the weights themselves: those of the first pass stay.
        """
        with keeping_values(self._weights), keeping_momenta(self._norms):
            for norm in self._norms:
                norm.momentum = 0.0
            self._climb()
            yield

    @torch.no_grad()
    def _climb(self) -> None:
        gradients = [torch.zeros_like(own) if own.grad is None else own.grad for own in self._weights]
        length = torch.stack(torch._foreach_norm(gradients)).norm()
        part: Tensor = self.radius / length.clamp_min(1e-12)  # a gradient of nothing leads nowhere
        torch._foreach_add_(self._weights, torch._foreach_mul(gradients, part))
