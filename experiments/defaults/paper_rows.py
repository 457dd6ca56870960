"""Runs on 5,000 held-out training images that choose the recipes of the paper's rows: CIFAR-10, Tiny ImageNet, PreAct.

``levers-cifar100`` looks for accuracy above cross-entropy's: mixed pictures and averaging over mirror images, for both.
``focus-…`` asks what focus and flat codes give to few classes; ``focus-cifar10-short`` and ``-longer`` are for two
cores of a CPU, half an hour and an hour and a half.
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


def _trial(study: str, row: str, epochs: int, of_all: dict[str, Any] | None = None, /, **changes: Any) -> Trial:
    """A recipe with changes, which name it; those ``of_all`` runs of the study do not."""
    said = " ".join([row, f"epochs={epochs}", *(f"{name}={value}" for name, value in changes.items())])
    fixed = {"holdout": HELD_OUT, "calibration_share": 0.0, "eval_every": _NEVER, "average_flips": True}
    return Trial(study, said, recipe(row, epochs=epochs, **fixed | (of_all or {}) | changes))


def cifar10() -> Iterator[Trial]:
    """CIFAR-10: the decay for V-MCR², and whether exact MCR² gains from carried rows."""
    study, gentle = "row-cifar10", {"batch_expansion": 0.1, "weight_decay": 5e-4, "decay_all": True}
    for own in ({}, {"weight_decay": 1e-3}):
        yield _trial(study, "cifar10-vmcr2", 300, **gentle | own)
    for memory in (0, 20_000):
        yield _trial(study, "cifar10-mcr2", 150, memory=memory)


def cifar10_others() -> Iterator[Trial]:
    """CIFAR-10: rates, decay and crops for cross-entropy; rates, decay, more rows and crops for exact MCR²."""
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "ce": ({}, {"lr": 0.5}, {"lr": 0.2}, {"lr": 0.5, "weight_decay": 1e-3}, {"lr": 0.5, "crop_padding": 4}),
        "mcr2": ({}, {"lr": 0.3}, {"lr": 0.03}, {"weight_decay": 2e-3}, {"memory": 40_000}, {"crop_padding": 4}),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield _trial(f"row-cifar10-{objective}", f"cifar10-{objective}", 200, **own)


def focus() -> Iterator[Trial]:
    """CIFAR-10 with focus: alone, with the decay that it bears, and with flat codes; short on a CPU, and longer."""
    focused: dict[str, Any] = {"focus": 10.0}
    decay: dict[str, Any] = {"weight_decay": 2e-3}
    flat: dict[str, Any] = decay | {"codes": "flat", "codes_trace": 8.0, "atoms_per_class": 12}
    narrow: dict[str, Any] = flat | {"crop_padding": 4}
    # few steps: a shorter mean, and latching that happens at all
    short: dict[str, Any] = {"average": 0.99, "latch_every": 5, "precision": "bfloat16"}
    lengths: tuple[tuple[str, int, dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
        ("focus-cifar10-short", 15, short, ({}, focused, focused | decay, focused | flat, flat)),
        ("focus-cifar10-longer", 50, short, (flat, {}, focused | flat, narrow, decay)),
        ("focus-cifar10", 300, {}, ({}, decay, focused, focused | decay, focused | flat, flat, narrow)),
    )
    for study, epochs, of_all, ways in lengths:
        for own in ways:
            yield _trial(study, "cifar10-vmcr2", epochs, of_all, **own)


def preact() -> Iterator[Trial]:
    """PreAct ResNet-18 on Tiny ImageNet: with and without focus; rates and areas for cross-entropy."""
    study = "row-tiny-imagenet-preact"
    for value in (3.0, 0.0):
        yield _trial(study, "tiny-imagenet-preact-vmcr2", 50, focus=value)
    for lr, area in ((0.5, 0.5), (1.0, 0.5), (0.5, 0.08)):
        yield _trial(study, "tiny-imagenet-preact-ce", 50, lr=lr, least_area=area)


def longer() -> Iterator[Trial]:
    """CIFAR-100: composed objectives in longer runs, where V-MCR² alone gains; fewer and more of the rate."""
    study, as_ce = "levers-cifar100-longer", {"flip": True, "crop_padding": 8, "decay_all": True}
    yield _trial(study, "cifar100-ce", 600)
    for objective, weights in (("ce+mcr2", (0.006, 0.012)), ("ce+vmcr2", (0.06, 0.2))):
        for weight in weights:
            yield _trial(study, f"cifar100-{objective}", 600, **as_ce, rate_weight=weight)


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


def tiny_imagenet_more() -> Iterator[Trial]:
    """Tiny ImageNet: what was taken from CIFAR-100 by analogy, and focus with flat codes for its ΔR."""
    study = "row-tiny-imagenet-more"
    flat: dict[str, Any] = {"codes": "flat", "codes_trace": 8.0, "atoms_per_class": 5, "focus": 3.0, "lr": 0.3}
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "vmcr2": ({"batch_expansion": 0.15}, {"weight_decay": 1.5e-3}, flat | {"weight_decay": 2e-3}),
        "ce": ({"lr": 0.5}, {"weight_decay": 1e-3}),
        "mcr2": ({}, {"lr": 0.3}, {"augmentation": "flip"}),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield _trial(study, f"tiny-imagenet-{objective}", 100, **own)
