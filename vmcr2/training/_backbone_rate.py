"""The backbone's own learning rate: a part of the network's rate, or 0, which freezes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from .._shared import UserError


@runtime_checkable
class WithBackbone(Protocol):
    """What a network must offer for it, as those of :mod:`vmcr2.models` that have a backbone do."""

    def backbone_parameters(self) -> Mapping[str, nn.Parameter]:
        """By name."""

    def freeze_backbone(self) -> None:
        """No gradients, and evaluation mode also in training."""

    def thaw_backbone(self) -> None:
        """The opposite."""


class BackboneRate:
    """Which parameters have a rate of their own, and that rate. With a factor of 1 there are none.

    Args:
        network: whose backbone it is.
        factor: the backbone's rate as a part of ``rate``; 0 freezes it.
        rate: the network's, as a 0-dim tensor that changes from step to step.
    """

    def __init__(self, network: nn.Module, factor: float, rate: Tensor) -> None:
        self.rate = rate
        """The backbone's."""
        self.frozen = factor == 0
        self._whole, self._factor = rate, factor
        self._network: WithBackbone | None = None
        self._own: set[int] = set()
        if factor == 1:
            return
        if not isinstance(network, WithBackbone):
            raise UserError(f"backbone_rate is {factor:g}, but {type(network).__name__} has no backbone: leave it out")
        self._network = network
        self._own = {id(parameter) for parameter in network.backbone_parameters().values()}
        self.rate = rate * factor
        if self.frozen:
            network.freeze_backbone()

    def has(self, parameter: Tensor) -> bool:
        """Whether it learns with :attr:`rate`."""
        return id(parameter) in self._own

    @torch.no_grad()
    def follow(self) -> None:
        """Compute the rate from the network's. It is a part of the step, so a captured one does it at every replay."""
        if self._own and not self.frozen:
            torch.mul(self._whole, self._factor, out=self.rate)

    def release(self) -> None:
        """Undo the freezing: the run is over."""
        if self._network is not None and self.frozen:
            self._network.thaw_backbone()
