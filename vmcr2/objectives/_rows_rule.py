"""Settings for rows of numbers: what the estimators, and the trainer on tables, use where nothing is given.

They were searched for on tables; docs/defaults.md says how.
"""

from __future__ import annotations

import math
from typing import Any

from ._known import OBJECTIVES

INPUT_NOISE = 0.5
"""Spread of the noise on training rows, in units of each column's own spread."""
ROWS_BATCH = 500
"""Rows of a batch, at most."""
WHOLE_WEIGHT = 50
"""Samples per class from which a rate has its whole weight. It spreads the few samples of smaller classes apart."""
_LR = {"mcr2": 0.03}
_WEIGHT_DECAY = {"vmcr2": 2e-3}
_LOSS_SCALE = {"vmcr2": 0.05}
_RATE_SHARE = 10.0
_MOST_EPOCHS, _FEWEST_EPOCHS, _STEPS = 100, 30, 300


def rows_rule(objective: str, num_classes: int, dim: int, samples: int, batch_size: int) -> dict[str, Any]:
    """Settings by flat name: those of the steps, and those that the objective has.

    >>> found = rows_rule("ce+mcr2", num_classes=3, dim=39, samples=150, batch_size=500)
    >>> found["lr"], found["epochs"], round(found["rate_weight"], 3)
    (0.3, 100, 0.256)
    """
    values = {
        "lr": _LR.get(objective, 0.3),
        "weight_decay": _WEIGHT_DECAY.get(objective, 5e-4),
        "momentum": 0.9,
        "nesterov": True,
        "schedule": "cosine",
        "epochs": _epochs(samples, batch_size),
        "loss_scale": _LOSS_SCALE.get(objective, 1.0),
    }
    own = {
        "rate_weight": _rate_weight(dim, samples / num_classes),
        "weight": 20.0,
        "batch_expansion": 0.3,
        "debias": True,
        "atoms_per_class": min(12, dim, max(2, 2 * dim // num_classes)),
    }
    known = OBJECTIVES[objective].known()
    return values | {name: value for name, value in own.items() if name in known}


def _epochs(samples: int, batch_size: int) -> int:
    """About 300 steps: at most 100 epochs, at least 30."""
    return max(_FEWEST_EPOCHS, min(_MOST_EPOCHS, _STEPS // math.ceil(samples / batch_size)))


def _rate_weight(dim: int, samples_per_class: float) -> float:
    """λ of the composed objectives on tables: 10/d, and less with few samples per class.

    >>> _rate_weight(100, 80), _rate_weight(100, 25)
    (0.1, 0.05)
    """
    return _RATE_SHARE / dim * min(1.0, samples_per_class / WHOLE_WEIGHT)
