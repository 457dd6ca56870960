"""Studies of CIFAR-100: accuracy above cross-entropy's by composing and by pictures, and PreAct ResNet-18."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._trial import CUTMIX, MIXUP, NARROW, PARTS, Trial, flat, trial


def trials() -> Iterator[Trial]:
    """All of them, study by study."""
    yield from _levers()
    yield from _pictures()
    yield from _preact()


def _levers() -> Iterator[Trial]:
    """Cross-entropy and composed objectives with the same levers."""
    study = "levers-cifar100"
    for own in ({}, MIXUP, CUTMIX):
        yield trial(study, "cifar100-ce", 200, **own)
    as_ce: dict[str, Any] = {"flip": True, "crop_padding": 8, "decay_all": True}
    for own in ({}, CUTMIX):
        yield trial(study, "cifar100-ce+vmcr2", 200, **as_ce | own)
    yield trial(study, "cifar100-ce+mcr2", 200, **as_ce)


def _pictures() -> Iterator[Trial]:
    """Crops from a border of 4 and 8 pixels, parts of the picture and mixed pictures, composed and alone."""
    study, focused = "levers-cifar100-narrow", flat(5) | {"focus": 3.0}
    as_ce: dict[str, Any] = {"flip": True, "decay_all": True}
    for own in ({"crop_padding": 8}, NARROW | MIXUP):
        yield trial(study, "cifar100-ce+mcr2", 400, **own | as_ce)
    for own in (NARROW, PARTS):
        yield trial(study, "cifar100-ce+mcr2", 300, **own | as_ce)
    yield trial(study, "cifar100-ce+vmcr2", 300, **NARROW | as_ce | focused)
    yield trial(study, "cifar100-vmcr2", 300, **PARTS | focused | {"lr": 0.3, "weight_decay": 2e-3})
    for own in (NARROW, PARTS):
        yield trial(study, "cifar100-ce", 300, **own)
    yield trial(study, "cifar100-ce", 400, **NARROW | MIXUP)


def _preact() -> Iterator[Trial]:
    """PreAct ResNet-18: fewer epochs, and mixed pictures."""
    study = "row-cifar100-preact"
    for own in ({}, CUTMIX):
        yield trial(study, "cifar100-preact-vmcr2", 200, focus=3.0, components=2, **own)
        yield trial(study, "cifar100-preact-ce", 200, **own)
