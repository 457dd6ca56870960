"""CIFAR-100 at d 100, where a class has room for one dimension of its own."""

from __future__ import annotations

from typing import Any

from _tries import FALLING, GENTLE, PULLING, Try, base, tries

_MEAN: dict[str, Any] = {"schedule": "linear", "average": 0.999}
_LINES: dict[str, Any] = {"codes": "flat", "atoms_per_class": 1, "codes_trace": 2.0}
"""One atom for each class, which does not shrink."""


def narrow() -> dict[str, list[Try]]:
    """By name."""
    like_500 = PULLING | _MEAN | {"lr": 0.1, "weight_decay": 3e-3, "batch_expansion": 0.07}
    variational = base("cifar100-d100-vmcr2", epochs=200, **like_500)
    pushed = _LINES | {"batch_expansion": 0.2}
    firm = _LINES | {"codes_trace": 4.0, "batch_expansion": 0.5}
    wide = base("cifar100-vmcr2", epochs=200, **like_500)
    literal = base("cifar100-d100-mcr2", epochs=200)
    carried = literal.replace(**GENTLE | {"lr": 0.1, "memory": 20000})
    return {
        "narrow": [
            *tries(variational, {}, {"atoms_per_class": 2}, {"atoms_per_class": 1}),
            *tries(variational, _LINES, pushed, pushed | {"weight_decay": 5e-3}, pushed | {"focus": 3.0}),
            *tries(variational, firm),
            *tries(literal, {}, FALLING | {"lr": 0.01}),
            *tries(carried, {}, _MEAN, _MEAN | {"weight_decay": 2e-3}),
        ],
        # after `narrow`, whose best was the most push and the largest trace: further that way, and the same at d 500
        "lines": [
            *tries(variational, firm | {"batch_expansion": 1.0}, firm | {"focus": 1.0}),
            *tries(variational, *(firm | {"codes_trace": 8.0, "batch_expansion": push} for push in (0.5, 1.0))),
            *tries(wide, _LINES, firm | {"batch_expansion": 0.07}, firm, firm | {"codes_trace": 8.0}),
        ],
    }
