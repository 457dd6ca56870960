"""Cross-entropy and a rate reduction in one objective: a head for accuracy, and features on class subspaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from .._shared import setting
from ._ce import CESettings
from ._mcr2 import MCR2Settings
from ._objective import NOT_NEGATIVE, Objective
from ._vmcr2 import VMCR2Settings, dictionary_rule


def exact_rate_weight(dim: int) -> float:
    """λ beside exact MCR² where it is not given: 3/d, at least 0.012. More costs accuracy, less costs ΔR."""
    return max(0.012, 3 / dim)


def variational_rate_weight(dim: int) -> float:
    """λ beside V-MCR²: 15/d, at least 0.1. Its loss holds R with the weight β, 0.1, so it takes more of it."""
    return max(0.1, 15 / dim)


@dataclass(frozen=True)
class CEMCR2Settings(MCR2Settings):
    """Cross-entropy − λ·ΔR, exact."""

    name: ClassVar[str] = "ce+mcr2"
    title: ClassVar[str] = "cross-entropy + exact MCR²"

    rate_weight: float | None = setting(None, **NOT_NEGATIVE)
    """λ, the weight of the rate reduction beside the mean cross-entropy. None: 3/d, at least 0.012."""

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """Cross-entropy's steps, and λ."""
        return CESettings.rule(num_classes, dim, batch_size) | {"rate_weight": exact_rate_weight(dim)}

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With a new head and an empty memory."""
        weight = exact_rate_weight(dim) if self.rate_weight is None else self.rate_weight
        return _beside(super().build(num_classes, dim, labels, batch_size), weight, dim, labels, batch_size)


@dataclass(frozen=True)
class CEVMCR2Settings(VMCR2Settings):
    """Cross-entropy + λ times V-MCR²'s loss."""

    name: ClassVar[str] = "ce+vmcr2"
    title: ClassVar[str] = "cross-entropy + V-MCR²"

    rate_weight: float | None = setting(None, **NOT_NEGATIVE)
    """λ, the weight of V-MCR²'s loss beside the mean cross-entropy. None: 15/d, at least 0.1."""

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """Cross-entropy's steps, V-MCR²'s dictionary, and λ."""
        steps = CESettings.rule(num_classes, dim, batch_size)
        return steps | dictionary_rule(num_classes, dim) | {"rate_weight": variational_rate_weight(dim)}

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With a new head, and a dictionary that is not latched yet."""
        weight = variational_rate_weight(dim) if self.rate_weight is None else self.rate_weight
        return _beside(super().build(num_classes, dim, labels, batch_size), weight, dim, labels, batch_size)


def _beside(rate: Objective, rate_weight: float, dim: int, labels: Tensor, batch_size: int) -> Objective:
    """A new head beside a rate reduction."""
    ce = CESettings(eps_sq=rate.settings.eps_sq).build(rate.num_classes, dim, labels, batch_size)
    return ComposedObjective(ce, rate, rate_weight)


class ComposedObjective(Objective):
    """The loss of ``ce`` plus ``rate_weight`` times that of ``rate``: the head of the first, the life of the second."""

    def __init__(self, ce: Objective, rate: Objective, rate_weight: float) -> None:
        module = nn.ModuleDict({"ce": ce.module, "rate": rate.module})
        super().__init__(rate.settings, module, num_classes=rate.num_classes, capacity=rate.capacity)
        self.ce, self.rate, self.rate_weight = ce, rate, rate_weight

    def make_room(self, rows: int, classes: int | None = None) -> None:
        """In both parts."""
        super().make_room(rows, classes)
        self.ce.make_room(rows, classes)
        self.rate.make_room(rows, classes)

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """The sum."""
        return self.ce.loss(z, labels) + self.rate_weight * self.rate.loss(z, labels)

    def terms(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The terms of the rate reduction, with the sum as the loss, and the mean cross-entropy."""
        terms, cross_entropy = self.rate.terms(z, labels), self.ce.loss(z, labels)
        loss = cross_entropy + self.rate_weight * terms["loss"]
        return terms | {"loss": loss, "cross_entropy": cross_entropy}

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        """The gradient of the sum. The rate reduction updates its state as it does alone."""
        rate = self.rate.surrogate(z, labels, ahead)
        return self.ce.surrogate(z, labels, weights=weights) + self.rate_weight * rate

    def look_ahead(self, labels: Tensor) -> Any:
        """What the rate reduction needs."""
        return self.rate.look_ahead(labels)

    def begin(self, epoch: int) -> None:
        """For the rate reduction."""
        self.rate.begin(epoch)

    def latch_due(self, steps: int, steps_per_epoch: int) -> bool:
        """When the rate reduction asks for it."""
        return self.rate.latch_due(steps, steps_per_epoch)

    def between_steps(self, steps: int) -> None:
        """What the rate reduction does there."""
        self.rate.between_steps(steps)

    def latch(self, features: Tensor, labels: Tensor) -> None:
        """The rate reduction's state."""
        self.rate.latch(features, labels)

    def predict(self, z: Tensor) -> Tensor | None:
        """By the head."""
        return self.ce.predict(z)

    @property
    def head(self) -> nn.Linear | None:
        """Cross-entropy's."""
        return self.ce.head

    @property
    def fault(self) -> Tensor | None:
        """The rate reduction's."""
        return self.rate.fault

    def shown(self) -> dict[str, Tensor]:
        """What the rate reduction shows."""
        return self.rate.shown()
