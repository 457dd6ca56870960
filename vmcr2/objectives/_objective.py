"""What every objective is: settings that build it, a module that holds its state, and answers to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .._shared import Settings, setting
from ..functional import LEAST, MOST, RateTerms, class_capacity, rate_reduction

POSITIVE = {"above": 0, "at_least": LEAST, "at_most": MOST}
"""The range of the losses' numbers, as the rule of a setting."""
NOT_NEGATIVE = {"at_least": 0, "at_most": MOST}


class Objective(ABC):
    """What a run minimises, from the first latching to the last figure. Nobody asks for its type.

    Args:
        settings: those it was built from.
        module: holds its state (dictionary, memory, head). Its parameters are trained with the network's, and its
            ``state_dict`` is what a run keeps.
        num_classes: k.
        capacity: room per class for the rates of a batch, see :func:`batch_capacity`.
    """

    def __init__(
        self, settings: ObjectiveSettings, module: nn.Module, *, num_classes: int, capacity: int | None
    ) -> None:
        self.settings = settings
        self.module = module
        self.num_classes = num_classes
        self.capacity = capacity

    def make_room(self, rows: int, classes: int | None = None) -> None:
        """From now on any class may have so many rows of a batch, which has at most ``classes`` classes; None: any."""
        self.capacity = rows

    @abstractmethod
    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """The value on a batch, for a log; changes nothing."""

    @abstractmethod
    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        """What a training step differentiates. It may update the state, and its value may be 0.

        ``ahead`` is what :meth:`look_ahead` gave for these labels. ``weights`` (m,) are of the samples, where
        ``settings.weighs_samples`` says that the objective takes them.
        """

    def look_ahead(self, labels: Tensor) -> Any:
        """What :meth:`surrogate` needs of the labels and of its own state; None for nothing.

        On a GPU it is computed beside the backward pass of the step before, into buffers that stay: what it returns
        has a method ``tensors()``, which lists all that it holds, always in one order and of one shape.
        """
        return None

    def latch_due(self, steps: int, steps_per_epoch: int) -> bool:
        """Whether to latch after so many steps of a run; 0 is before the first."""
        return False

    def begin(self, epoch: int) -> None:  # noqa: B027 -- most have nothing to do
        """Called before an epoch of training, outside its steps."""

    def between_steps(self, steps: int) -> None:  # noqa: B027 -- most have nothing to do
        """Called before every step of a run, outside of what is recorded, with the number of those that are done."""

    def latch(self, features: Tensor, labels: Tensor) -> None:  # noqa: B027 -- most have nothing to latch
        """Renew the state from features of the whole training set, in evaluation mode."""

    def predict(self, z: Tensor) -> Tensor | None:
        """Classes by a head of its own; None where it has none, and the nearest subspace decides."""
        return None

    @property
    def head(self) -> nn.Linear | None:
        """The linear layer that :meth:`predict` goes by."""
        return None

    @property
    def fault(self) -> Tensor | None:
        """A device flag that is set where a step went wrong; None where that cannot happen."""
        return None

    def terms(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The figures of a batch for a log: the loss, and R, R_c and ΔR of the batch."""
        return {"loss": self.loss(z, labels)} | self.rate_terms(z, labels)

    def rate_terms(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """R, R_c and ΔR of the batch, as a log names them."""
        rates = self.rates(z, labels)
        return {"expansion": rates.expansion, "compression": rates.compression, "batch_delta_r": rates.delta}

    def rates(self, z: Tensor, labels: Tensor) -> RateTerms:
        """R, R_c and ΔR of a batch, by shapes that do not depend on values.

        With more classes than rows, those of the batch get numbers of their own: others would need room for nothing.
        """
        k, capacity = self.num_classes, self.capacity
        if k > len(z) and labels.ndim == 1:
            k, capacity = len(z), class_capacity(len(z) / k) if capacity is None else capacity
            labels = torch.unique(labels, return_inverse=True)[1]
        return rate_reduction(z, labels, k, eps_sq=self.settings.eps_sq, max_class_size=capacity, validate=False)

    def shown(self) -> dict[str, Tensor]:
        """State that a report shows, by name."""
        return {}

    def not_finite(self) -> list[str]:
        """Names of the parts of its state that are not finite."""
        parts = [*self.module.named_buffers(), *self.module.named_parameters()]
        return [name for name, part in parts if not bool(torch.isfinite(part).all())]


@dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """The section ``objective`` of a configuration: what all objectives have."""

    name: ClassVar[str]
    """As a configuration calls it."""
    title: ClassVar[str]
    """As a person writes it."""
    weighs_samples: ClassVar[bool] = False
    """Whether it is a sum over samples, which can have weights."""

    separates: ClassVar[bool] = True
    """Whether it maximises a rate reduction: then a small ΔR is a fault."""

    eps_sq: float = setting(0.5, **POSITIVE)
    """ε², the squared precision. With cross-entropy too: ΔR is measured by it."""
    loss_scale: float = setting(1.0, **POSITIVE)
    """Factor of the whole loss before it is differentiated for the network."""

    def contradictions_with(self, batch_size: int) -> Iterator[str]:
        """What is wrong between this section and the batch size, in sentences."""
        return iter(())

    @property
    def takes_memberships(self) -> bool:
        """Whether a training step may give it memberships (m, k) instead of labels."""
        return True

    @property
    def expects_memberships(self) -> bool:
        """Whether it is set up for samples of several classes, and pays for it."""
        return False

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """What suits data that nobody has searched for, by flat name: own settings, learning rate and weight decay."""
        return {}

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """The objective for a training set with these labels, in batches of ``batch_size``.

        The networks normalise their features, so it does not. Nor does it look at values in a step: what goes wrong
        sets ``fault``.
        """
        raise NotImplementedError


def room(dim: int, num_classes: int) -> int:
    """⌊d/k⌋: the dimensions of a class if all classes are orthogonal and equal, at least 1."""
    return max(1, dim // num_classes)


def batch_capacity(labels: Tensor, num_classes: int, rows: int) -> int | None:
    """``max_class_size`` for so many rows of a training set; None where the losses' own, for even classes, is enough.

    Six standard deviations above the largest class's share are exceeded in one of a billion batches.
    """
    needed = class_capacity(rows * int(labels.bincount().max()) / len(labels), deviations=6.0)
    return needed if needed > class_capacity(rows / num_classes) else None
