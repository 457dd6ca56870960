"""Cross-entropy on a linear layer over the normalised feature: the yardstick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from ..losses import CrossEntropyLoss
from ._objective import Objective, ObjectiveSettings, batch_capacity


@dataclass(frozen=True)
class CESettings(ObjectiveSettings):
    """Cross-entropy has no settings of its own."""

    name: ClassVar[str] = "ce"
    title: ClassVar[str] = "cross-entropy"
    weighs_samples: ClassVar[bool] = True
    separates: ClassVar[bool] = False

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """A smaller batch has a noisier mean: its steps are shorter."""
        return {"lr": min(1.0, batch_size / 1000), "weight_decay": 5e-4}

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With a new head."""
        capacity = batch_capacity(labels, num_classes, batch_size)
        return CEObjective(self, CrossEntropyLoss(dim, num_classes), num_classes=num_classes, capacity=capacity)


class CEObjective(Objective):
    """The only one with a head, and the only one that weighs samples."""

    module: CrossEntropyLoss

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        return cast(Tensor, self.module(z, labels))

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        """The loss itself."""
        return cast(Tensor, self.module(z, labels, weights))

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit."""
        return self.module.predict(z)

    @property
    def head(self) -> nn.Linear:
        """It."""
        return self.module.head
