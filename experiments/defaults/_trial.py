"""One run of a study on held-out images, and what such runs share."""

from __future__ import annotations

from typing import Any, NamedTuple

from vmcr2.runs import Config, recipe

HELD_OUT = 5000
_NEVER = 1_000_000
"""Measured at the end alone: measuring on the way costs time, and chooses nothing."""

NARROW: dict[str, Any] = {"crop_padding": 4}
PARTS: dict[str, Any] = {"augmentation": "resized-crop", "least_area": 0.5}
MIXUP: dict[str, Any] = {"mix": "mixup", "mix_until": 0.8}
CUTMIX: dict[str, Any] = {"mix": "cutmix", "mix_until": 0.8}
"""Ways to see the pictures."""


def flat(atoms: int) -> dict[str, Any]:
    """Codes that the steps leave alone."""
    return {"codes": "flat", "codes_trace": 8.0, "atoms_per_class": atoms}


BY_VIEWS = (
    *("row-cifar10-next", "levers-cifar100-narrow", "row-tiny-imagenet-next", "row-cifar100-preact"),
    "row-cifar10-mixed",
)
"""Studies whose runs are measured by many views of a picture, to choose among these too."""

STARTS: dict[str, dict[str, Any]] = {
    "cifar10-vmcr2": {
        **{"codes": "free", "atoms_per_class": 24, "focus": 0.0, "weight_decay": 5e-4, "decay_all": True},
        **{"crop_padding": 8, "mix": "none"},
    },
    "cifar10-mcr2": {"crop_padding": 8, "weight_decay": 5e-4},
    "cifar10-ce": {"crop_padding": 8, "mix": "none"},
    "tiny-imagenet-vmcr2": {"codes": "free", "atoms_per_class": 10, "focus": 0.0, "lr": 0.1, "weight_decay": 3e-3},
    "cifar100-preact-vmcr2": {"mix": "none"},
    "cifar100-preact-ce": {"mix": "none"},
    "tiny-imagenet-mcr2": {"augmentation": "resized-crop", "least_area": 0.5, "components": 0},
    "tiny-imagenet-ce": {"lr": 1.0},
    "tiny-imagenet-d200-vmcr2": {"augmentation": "flip"},
    "tiny-imagenet-preact-ce": {"lr": 0.5},
}
"""What recipes had when their studies began, and have no more. A run's name says what it changes from there."""

_FIXED: dict[str, Any] = {
    **{"holdout": HELD_OUT, "calibration_share": 0.0, "eval_every": _NEVER},
    **{"average_flips": True, "average_shifts": 0},
}
"""What all runs have, unless a study says otherwise."""

_OF_AUGMENTATION = ("augmentation", "crop_padding", "least_area")
"""A way to change pictures, and what only one of them has."""


class Trial(NamedTuple):
    """One run of a study."""

    study: str
    name: str
    config: Config


def trial(study: str, row: str, epochs: int, of_all: dict[str, Any] | None = None, /, **changes: Any) -> Trial:
    """A recipe as it was, with changes, which name the run; those ``of_all`` runs of the study do not."""
    said = " ".join([row, f"epochs={epochs}", *(f"{name}={value}" for name, value in changes.items())])
    start = STARTS.get(row, {})
    if "augmentation" in changes:  # it has settings of its own
        start = {name: value for name, value in start.items() if name not in _OF_AUGMENTATION}
    return Trial(study, said, recipe(row, epochs=epochs, **_FIXED | start | (of_all or {}) | changes))
