"""Studies that choose Tiny ImageNet's recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._trial import PARTS, Trial, flat, trial

MIRRORED: dict[str, Any] = {"augmentation": "flip"}


def trials() -> Iterator[Trial]:
    """All of them, study by study."""
    yield from _parts()
    yield from _more()
    yield from _next()
    yield from _narrow()
    yield from _preact()


def _parts() -> Iterator[Trial]:
    """Random parts of the picture, or mirroring alone as in the paper."""
    study = "row-tiny-imagenet"
    for objective in ("vmcr2", "ce"):
        for own in ({}, MIRRORED):
            yield trial(study, f"tiny-imagenet-{objective}", 100, **own)


def _more() -> Iterator[Trial]:
    """What was taken from CIFAR-100 by analogy, and flat codes for its ΔR."""
    study = "row-tiny-imagenet-more"
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "vmcr2": ({"batch_expansion": 0.15}, flat(5) | {"focus": 3.0, "lr": 0.3, "weight_decay": 2e-3}),
        "ce": ({"lr": 0.5}, {"weight_decay": 1e-3}),
        "mcr2": ({},),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield trial(study, f"tiny-imagenet-{objective}", 100, **own)


def _next() -> Iterator[Trial]:
    """Longer runs of flat codes with focus and of cross-entropy; mirroring alone, and calmer steps for exact MCR²."""
    study = "row-tiny-imagenet-next"
    focused = flat(5) | {"lr": 0.3, "focus": 3.0, "weight_decay": 2e-3}
    for own in ({}, {"focus": 10.0, "weight_decay": 1e-3}, MIRRORED):
        yield trial(study, "tiny-imagenet-vmcr2", 200, **focused | own)
    yield trial(study, "tiny-imagenet-ce", 200, lr=0.5)
    for own in (MIRRORED, {"weight_decay": 1e-4}):
        yield trial(study, "tiny-imagenet-mcr2", 100, **own)
    yield trial(study, "tiny-imagenet-mcr2", 600, **MIRRORED)
    yield trial(study, "tiny-imagenet-mcr2", 250, **MIRRORED | {"weight_decay": 1e-4})


def _narrow() -> Iterator[Trial]:
    """d 200, one dimension for each class: what came from CIFAR-100, in 200 epochs."""
    study, row = "row-tiny-imagenet-d200", "tiny-imagenet-d200-vmcr2"
    focused: dict[str, Any] = {"focus": 10.0, "lr": 0.3, "weight_decay": 1e-3}
    for own in ({}, focused, PARTS, PARTS | focused):
        yield trial(study, row, 200, **own)
    yield trial(study, "tiny-imagenet-d200-mcr2", 200)


def _preact() -> Iterator[Trial]:
    """PreAct ResNet-18: with and without focus; rates for cross-entropy; twice the epochs for both."""
    study = "row-tiny-imagenet-preact"
    for value in (3.0, 0.0):
        yield trial(study, "tiny-imagenet-preact-vmcr2", 50, focus=value)
    for lr in (0.5, 1.0):
        yield trial(study, "tiny-imagenet-preact-ce", 50, lr=lr)
    yield trial(study, "tiny-imagenet-preact-ce", 100, lr=1.0)
    yield trial(study, "tiny-imagenet-preact-vmcr2", 100, focus=3.0)
