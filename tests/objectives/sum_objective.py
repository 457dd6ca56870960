"""A fourth objective as somebody would write it: one file. The sum of cross-entropy and λ times exact MCR²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from vmcr2._shared import setting
from vmcr2.objectives import CESettings, MCR2Settings, Objective, ObjectiveSettings


@dataclass(frozen=True)
class SumSettings(ObjectiveSettings):
    """Settings of the sum."""

    name: ClassVar[str] = "sum"
    title: ClassVar[str] = "cross-entropy and MCR²"

    rate_weight: float = setting(0.1, at_least=0)
    """λ."""

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With a new head."""
        ce = CESettings(eps_sq=self.eps_sq).build(num_classes, dim, labels, batch_size)
        rate = MCR2Settings(eps_sq=self.eps_sq).build(num_classes, dim, labels, batch_size)
        return SumObjective(self, ce, rate)


class SumObjective(Objective):
    """Has the head of its first part, and the fault of its second."""

    settings: SumSettings

    def __init__(self, settings: SumSettings, ce: Objective, rate: Objective) -> None:
        module = nn.ModuleDict({"ce": ce.module, "rate": rate.module})
        super().__init__(settings, module, num_classes=ce.num_classes, capacity=rate.capacity)
        self.ce, self.rate = ce, rate

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        return self.ce.loss(z, labels) + self.settings.rate_weight * self.rate.loss(z, labels)

    def look_ahead(self, labels: Tensor) -> Any:
        return self.rate.look_ahead(labels)

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        return self.ce.surrogate(z, labels) + self.settings.rate_weight * self.rate.surrogate(z, labels, ahead)

    def predict(self, z: Tensor) -> Tensor | None:
        return self.ce.predict(z)

    @property
    def head(self) -> nn.Linear | None:
        return self.ce.head

    @property
    def fault(self) -> Tensor | None:
        return self.rate.fault
