"""A run of the search, and what the studies begin from.

Everything starts from the recipes that read the paper literally, which do not change, and says what is other: what a
run was must not depend on what the recipes have become since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vmcr2.sweep import Point
from vmcr2.train import Config, recipe

HOLDOUT = 5000


@dataclass(frozen=True)
class Try:
    """A run: a configuration, what it is called in its study, and the variant of the code it is made with, if any."""

    config: Config
    called: str
    variant: str = ""

    @property
    def id(self) -> str:
        """As in a sweep, with the variant's name behind it."""
        return Point(self.config).id + (f"-{self.variant}" if self.variant else "")


def tries(start: Config, *settings: dict[str, Any], variant: str = "") -> list[Try]:
    """One run for each dictionary of changes."""
    made = []
    for changes in settings:
        called = " ".join(f"{name}={value}" for name, value in changes.items()) or "the start"
        made.append(Try(start.replace(**changes), called, variant))
    return made


def base(name: str, **settings: Any) -> Config:
    """A literal recipe with other settings, and few lines of metrics: side by side on a GPU, a hundred cost seconds."""
    return recipe(f"{name}-paper", **({"holdout": HOLDOUT, "eval_every": 100, "log_every": 20} | settings))


FALLING = {"schedule": "cosine", "nesterov": True}
GENTLE: dict[str, Any] = FALLING | {"loss_scale": 0.05, "weight_decay": 5e-4}
PULLING = GENTLE | {"weight": 20.0, "debias": True, "cap_codes_step": True}

START = base("cifar100-vmcr2", epochs=200, lr=0.3, batch_expansion=0.1, **PULLING)
"""What had worked before this code existed, with the paper's ν, atoms and latching: where the search began."""

SHORT = START.replace(epochs=100)
CE = base("cifar100-ce", epochs=200, lr=1.0, **FALLING)
MCR2 = base("cifar100-mcr2", epochs=100)

EVEN: dict[str, Any] = {"codes": "flat", "codes_trace": 8.0, "atoms_per_class": 5}
"""Codes that do not move."""
