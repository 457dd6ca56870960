"""From classes and batches to an objective and its settings: what holds on data that nobody has tuned for.

How each number was found, and what it costs to be wrong, is in docs/defaults.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._composed import exact_rate_weight, variational_rate_weight

ENOUGH = 1.0
"""Samples of a class in a batch, for each dimension that the class has room for, from which the exact rate is used."""


def default_dim(num_classes: int) -> int:
    """13 per class up to the paper's 128 (10 classes), at least its 5 per class (500 for 100 classes), at most 512.

    A step costs d³ and more. But k orthogonal subspaces need k dimensions: above 512 classes each class has one.

    >>> default_dim(2), default_dim(10), default_dim(100), default_dim(1000)
    (26, 128, 500, 1000)
    """
    return max(num_classes, min(512, max(5 * num_classes, min(128, 13 * num_classes))))


def choose_objective(class_sizes: Sequence[int], batch_size: int, dim: int) -> str:
    """The name of the objective for classes of these sizes, in batches of ``batch_size`` with ``dim`` features.

    R_c of a batch says something about a class only if the batch has about as many of its samples as the class has
    room for dimensions, ⌊d/k⌋. There the exact rate is used, elsewhere the variational one, whose dictionary remembers
    classes between batches. Both are composed with cross-entropy: its head is the more accurate read-out.

    >>> choose_objective([5000] * 10, batch_size=1000, dim=128), choose_objective([20] * 1000, 500, 1000)
    ('ce+mcr2', 'ce+vmcr2')
    """
    classes = len(class_sizes)
    in_a_batch = min(batch_size, sum(class_sizes)) / classes
    return "ce+mcr2" if in_a_batch >= ENOUGH * room(dim, classes) else "ce+vmcr2"


def room(dim: int, num_classes: int) -> int:
    """⌊d/k⌋: the dimensions of a class if all classes are orthogonal and equal, at least 1."""
    return max(1, dim // num_classes)


def objective_rule(objective: str, num_classes: int, dim: int, batch_size: int = 1000) -> dict[str, Any]:
    """The settings of an objective, and the learning rate and the decay that suit it, by flat name.

    >>> objective_rule("vmcr2", 10, 128)["atoms_per_class"], objective_rule("ce", 10, 128, batch_size=200)
    (24, {'lr': 0.2, 'weight_decay': 0.0005})
    """
    values = _variational(room(dim, num_classes)) if "vmcr2" in objective else {}
    if "+" in objective:
        weight = exact_rate_weight if objective == "ce+mcr2" else variational_rate_weight
        values["rate_weight"] = weight(dim)
    if objective.startswith("ce"):
        # a smaller batch has a noisier mean: its steps are shorter
        return {"lr": min(1.0, batch_size / 1000), "weight_decay": 5e-4} | values
    # rates are hundreds of nats: a small factor starts a scale-free network gently
    return {"lr": 0.1, "weight_decay": 2e-3 if objective == "vmcr2" else 5e-4, "loss_scale": 0.05} | values


def _variational(dimensions: int) -> dict[str, Any]:
    """V-MCR² where a class has room for so many dimensions."""
    values: dict[str, Any] = {"weight": 20.0, "batch_expansion": 0.1, "debias": True}
    if dimensions == 1:  # one direction for a class: a dictionary of several would spread it
        return values | {"codes": "flat", "codes_trace": 4.0, "atoms_per_class": 1, "batch_expansion": 0.5}
    return values | {"codes": "free", "cap_codes_step": True, "atoms_per_class": 2 * dimensions}
