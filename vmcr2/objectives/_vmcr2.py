"""V-MCR²: the variational form of the paper, with a dictionary that the steps move and latching renews."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from .._shared import setting
from ..functional import VariationalTerms, class_capacity
from ..losses import VMCR2Loss
from ._objective import NOT_NEGATIVE, POSITIVE, Objective, ObjectiveSettings, batch_capacity, room


@dataclass(frozen=True)
class VMCR2Settings(ObjectiveSettings):
    """Settings of V-MCR²."""

    name: ClassVar[str] = "vmcr2"
    title: ClassVar[str] = "V-MCR²"

    mu: float | None = setting(None, unsets="weight", **POSITIVE)
    """The paper's μ. Give it or ``weight``: setting one unsets the other."""
    weight: float | None = setting(20.0, unsets="mu", **POSITIVE)
    """μm/2, the weight of the class-normalised mismatch."""
    batch_expansion: float = setting(0.1, **NOT_NEGATIVE)
    """β, the weight of the batch's exact rate. 0 is the paper's Eq. 7."""
    nu_dictionary: float = setting(5.0, **NOT_NEGATIVE)
    """ν_Γ."""
    nu_codes: float = setting(5.0, only_with={"codes": ("free",)}, **NOT_NEGATIVE)
    """ν_A."""
    debias: bool = False
    """Leave the pairs of a sample with itself out of M."""
    focus: float = setting(0.0, **NOT_NEGATIVE)
    """φ: samples far from their class's atoms are pulled up to 1 + φ times as hard as those that are there. 0 is the
    paper's M."""
    atoms_per_class: int = setting(20, at_least=1)
    """q/k."""
    codes: Literal["free", "flat"] = "free"
    """"free": not negative, as in the paper. "flat": a fixed trace, evenly on the class's own atoms."""
    codes_trace: float = setting(1.0, only_with={"codes": ("flat",)}, **POSITIVE)
    """The sum of a class's flat codes."""
    cap_codes_step: bool = setting(True, only_with={"codes": ("free",)})
    """Keep the codes' step small enough not to diverge."""
    block: bool = False
    """For thousands of classes: a class owns its atoms, and a step touches the classes of its batch only."""
    latch_every: int = setting(50, at_least=0)
    """Latch on the whole training set after so many epochs or steps, and once before the first step. 0, with ``block``
    only: never; the classes of a batch latch themselves in every step."""
    latch_unit: Literal["epochs", "steps"] = "epochs"
    """What ``latch_every`` counts."""

    def contradictions(self) -> Iterator[str]:
        """μ and the weight are two names of one thing."""
        if (self.mu is None) == (self.weight is None):
            yield "V-MCR² takes mu or weight (weight = μm/2), one of them"
        if self.latch_every == 0 and not self.block:
            yield "latch_every must be at least 1, got 0: only with block=true classes latch themselves"

    @property
    def takes_memberships(self) -> bool:
        """In blocks a sample has one class."""
        return not self.block

    @classmethod
    def rule(cls, num_classes: int, dim: int, batch_size: int) -> dict[str, Any]:
        """As for exact MCR², with more decay, and a dictionary for the dimensions that a class has room for."""
        return {"lr": 0.1, "weight_decay": 2e-3, "loss_scale": 0.05} | dictionary_rule(num_classes, dim)

    def build(self, num_classes: int, dim: int, labels: Tensor, batch_size: int) -> Objective:
        """With a dictionary that is not latched yet."""
        capacity = batch_capacity(labels, num_classes, batch_size)
        in_blocks: dict[str, Any] = {}
        if self.block:
            shares = labels.bincount(minlength=num_classes).double() / len(labels)
            capacity = class_capacity(batch_size * float(shares.max()), deviations=6.0)
            in_blocks = {"block": True, "class_shares": shares.cpu()}
        loss = VMCR2Loss(
            num_classes,
            dim,
            atoms_per_class=self.atoms_per_class,
            eps_sq=self.eps_sq,
            mu=self.mu,
            weight=self.weight,
            nu_dictionary=self.nu_dictionary,
            nu_codes=self.nu_codes,
            batch_expansion=self.batch_expansion,
            scale=1.0,  # every objective has loss_scale, and what is logged is in nats
            debias=self.debias,
            focus=self.focus,
            codes=self.codes,
            codes_trace=self.codes_trace,
            cap_codes_step=self.cap_codes_step,
            self_latch=self.latch_every == 0,
            max_gradient=None,
            normalize=False,
            max_class_size=capacity,
            validate=False,
            **in_blocks,
        )
        return VMCR2Objective(self, loss, num_classes=num_classes, capacity=capacity)


MANY = 512
"""Classes above which the rule takes block mode. Each has one flat atom there: the same step for less."""


def dictionary_rule(num_classes: int, dim: int) -> dict[str, Any]:
    """Weights and atoms for the dimensions that a class has room for, by flat name."""
    dimensions = room(dim, num_classes)
    values: dict[str, Any] = {"weight": 20.0, "batch_expansion": 0.1, "debias": True}
    if num_classes > MANY:
        values["block"] = True
    if dimensions == 1:  # one direction for a class: a dictionary of several would spread it
        return values | {"codes": "flat", "codes_trace": 4.0, "atoms_per_class": 1, "batch_expansion": 0.5}
    return values | {"codes": "free", "cap_codes_step": True, "atoms_per_class": 2 * dimensions}


class VMCR2Objective(Objective):
    """Keeps Γ and A, which latching renews from the whole training set."""

    settings: VMCR2Settings
    module: VMCR2Loss

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """Minus the objective of Eq. 7, less β·R(z)."""
        return self._value(self.module.terms(z, labels))

    def _value(self, parts: VariationalTerms) -> Tensor:
        return -parts.objective - self.settings.batch_expansion * parts.expansion

    def terms(self, z: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """With the parts of Eq. 7, and the codes' mean trace."""
        parts = self.module.terms(z, labels)
        return (
            {"loss": self._value(parts)}
            | self.rate_terms(z, labels)
            | {
                "variational_expansion": parts.variational_expansion,
                "variational_compression": parts.variational_compression,
                "mismatch": self.module.precise_mismatch(z, labels),
                "codes_trace": self.module.mean_trace,
            }
        )

    def make_room(self, rows: int, classes: int | None = None) -> None:
        """In the loss too."""
        super().make_room(rows, classes)
        self.module.max_class_size, self.module.max_classes = rows, classes

    def look_ahead(self, labels: Tensor) -> Any:
        """R^v does not depend on the features, unless every step latches on them first."""
        return self.module.look_ahead(labels) if self.settings.latch_every else None

    def surrogate(self, z: Tensor, labels: Tensor, ahead: Any = None, weights: Tensor | None = None) -> Tensor:
        """Algorithm 1's step on Γ and A, and the loss's gradient without its value."""
        return self.module.surrogate(z, labels, ahead, with_expansion=self.settings.batch_expansion > 0)

    def latch_due(self, steps: int, steps_per_epoch: int) -> bool:
        """Every so many epochs or steps."""
        if self.settings.latch_every == 0:
            return False
        every = self.settings.latch_every * (steps_per_epoch if self.settings.latch_unit == "epochs" else 1)
        return steps % every == 0

    def latch(self, features: Tensor, labels: Tensor) -> None:
        """Algorithm 2, unless the loss latches itself."""
        if self.settings.latch_every:
            self.module.latch(features, labels)

    def between_steps(self, steps: int) -> None:
        """In blocks, the sum over all classes without the rounding of many steps: a recorded step cannot do it."""
        if steps % self.module.refresh_every == 0:
            self.module.refresh()

    @property
    def fault(self) -> Tensor:
        """The loss's."""
        return self.module.fault

    def shown(self) -> dict[str, Tensor]:
        """How the classes use the dictionary. In blocks a class uses its own atoms: there is nothing to show."""
        return {} if self.settings.block else {"codes": self.module.codes}
