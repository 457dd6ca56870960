"""Exact MCR²: minus the rate reduction of the batch, or of the batch and past features together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from .._shared import setting
from ..losses import MCR2Loss
from ._objective import Objective, ObjectiveSettings, batch_capacity

_REFRESH_EVERY = 16
"""Epochs. A refresh takes a millisecond on a GPU."""


@dataclass(frozen=True)
class MCR2Settings(ObjectiveSettings):
    """Settings of exact MCR²."""

    name: ClassVar[str] = "mcr2"
    title: ClassVar[str] = "exact MCR²"

    memory: int = setting(0, at_least=0)
    """Rows of past features from which it takes its class statistics; 0 for the batch alone."""
    soft_memory: bool = False
    """The memory takes mixed samples, which belong to two classes. Steps take longer, and more so with more classes."""

    def contradictions_with(self, batch_size: int) -> Iterator[str]:
        """A batch replaces the oldest rows, so it must fit in."""
        if 0 < self.memory < batch_size:
            yield f"memory must hold a whole batch: 0, or at least batch_size {batch_size}, got {self.memory!r}"
        if self.soft_memory and self.memory == 0:
            yield f"soft_memory needs memory, at least batch_size {batch_size}, got 0: set memory, or soft_memory=false"

    @property
    def takes_memberships(self) -> bool:
        """The rows of a memory have one class each, unless it is soft."""
        return self.memory == 0 or self.soft_memory

    @property
    def expects_memberships(self) -> bool:
        """A soft memory costs time for them."""
        return self.soft_memory

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """Rates are hundreds of nats: a small factor starts a scale-free network gently."""
        return {"lr": 0.1, "weight_decay": 5e-4, "loss_scale": 0.05}

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With an empty memory."""
        loss = MCR2Loss(
            num_classes,
            eps_sq=self.eps_sq,
            memory=self.memory,
            dim=dim,
            soft_memory=self.soft_memory,
            max_gradient=None,
            normalize=False,
            max_class_size=batch_capacity(labels, num_classes, batch_size + self.memory),
            validate=False,
        )
        capacity = batch_capacity(labels, num_classes, batch_size)
        loss.keep_statistics(capacity)
        return MCR2Objective(self, loss, num_classes=num_classes, capacity=capacity)


class MCR2Objective(Objective):
    """Has no head, and nothing to latch."""

    module: MCR2Loss

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """−ΔR of the batch alone."""
        return -self.rates(z, labels).delta

    def terms(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss is one of the rates."""
        rates = self.rate_terms(z, labels)
        return {"loss": -rates["batch_delta_r"]} | rates

    def make_room(self, rows: int, classes: int | None = None) -> None:
        """In the memory too."""
        super().make_room(rows, classes)
        self.module.max_class_size = rows + self.module.memory
        self.module.keep_statistics(rows)

    def begin(self, epoch: int) -> None:
        """Class statistics of a memory: now and then without the rounding of many steps."""
        if epoch % _REFRESH_EVERY == 0:
            self.module.refresh_statistics()

    def look_ahead(self, labels: Tensor) -> Any:
        """Which sample belongs to which class; with a memory on a GPU also the inverses of its class statistics."""
        return self.module.look_ahead(labels)

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        """The loss's gradient without its value. The batch goes into the memory."""
        return self.module.surrogate(z, labels, ahead)

    @property
    def fault(self) -> Tensor:
        """The loss's."""
        return self.module.fault
