"""Runs on 5,000 held-out training images that choose the recipes of the paper's rows: CIFAR-10, Tiny ImageNet.

``levers-cifar100`` looks for accuracy above cross-entropy's: mixed pictures and averaging over mirror images, for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vmcr2.runs import Config, recipe

HELD_OUT = 5000
_NEVER = 1_000_000
"""Measured at the end alone: measuring on the way costs time, and chooses nothing."""


class Trial(NamedTuple):
    """One run of a study."""

    study: str
    name: str
    config: Config


def _trial(study: str, row: str, epochs: int, **changes: Any) -> Trial:
    said = " ".join([row, f"epochs={epochs}", *(f"{name}={value}" for name, value in changes.items())])
    fixed = {"holdout": HELD_OUT, "calibration_share": 0.0, "eval_every": _NEVER, "average_flips": True}
    return Trial(study, said, recipe(row, epochs=epochs, **fixed | changes))


def cifar10() -> Iterator[Trial]:
    """CIFAR-10: the decay for V-MCR², and whether exact MCR² gains from carried rows."""
    study, gentle = "row-cifar10", {"batch_expansion": 0.1, "weight_decay": 5e-4, "decay_all": True}
    for own in ({}, {"weight_decay": 1e-3}):
        yield _trial(study, "cifar10-vmcr2", 300, **gentle | own)
    for memory in (0, 20_000):
        yield _trial(study, "cifar10-mcr2", 150, memory=memory)


def cifar100() -> Iterator[Trial]:
    """CIFAR-100: cross-entropy, composed objectives and V-MCR² with the same levers."""
    study, cut, up = "levers-cifar100", {"mix": "cutmix", "mix_until": 0.8}, {"mix": "mixup", "mix_until": 0.8}
    for own in ({}, up, cut):
        yield _trial(study, "cifar100-ce", 200, **own)
    as_ce: dict[str, Any] = {"flip": True, "crop_padding": 8, "decay_all": True}
    for own in ({}, cut):
        yield _trial(study, "cifar100-ce+vmcr2", 200, **as_ce | own)
    yield _trial(study, "cifar100-ce+mcr2", 200, **as_ce)


def tiny_imagenet() -> Iterator[Trial]:
    """Tiny ImageNet: random parts of the picture, or mirroring alone as in the paper."""
    study, mirrored = "row-tiny-imagenet", {"augmentation": "flip"}
    for objective in ("vmcr2", "ce"):
        for own in ({}, mirrored):
            yield _trial(study, f"tiny-imagenet-{objective}", 100, **own)
