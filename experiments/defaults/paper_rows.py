"""Runs on 5,000 held-out training images that choose the recipes of the paper's rows: CIFAR-10, Tiny ImageNet, PreAct.

``levers-cifar100`` looks for accuracy above cross-entropy's: mixed pictures and averaging over mirror images, for both.
``focus-cifar10-short`` asks what focus and flat codes give to few classes; it is for two cores of a CPU, half an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
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


BY_VIEWS = ("row-cifar10-next", "levers-cifar100-narrow", "row-tiny-imagenet-next", "row-cifar100-preact")
"""Studies whose runs are measured by many views of a picture, to choose among these too."""

STARTS: dict[str, dict[str, Any]] = {
    "cifar10-vmcr2": {
        **{"codes": "free", "atoms_per_class": 24, "focus": 0.0, "weight_decay": 5e-4, "decay_all": True},
        **{"crop_padding": 8, "mix": "none"},
    },
    "cifar10-mcr2": {"crop_padding": 8, "weight_decay": 5e-4},
    "cifar10-ce": {"crop_padding": 8, "mix": "none"},
    "tiny-imagenet-vmcr2": {
        **{"codes": "free", "atoms_per_class": 10, "focus": 0.0, "lr": 0.1, "weight_decay": 3e-3},
    },
    "tiny-imagenet-mcr2": {"augmentation": "resized-crop", "least_area": 0.5},
    "tiny-imagenet-ce": {"lr": 1.0},
    "tiny-imagenet-preact-ce": {"lr": 0.5},
}
"""What recipes had when their studies began, and have no more. A run's name says what it changes from there."""


_OF_AUGMENTATION = ("augmentation", "crop_padding", "least_area")


class Trial(NamedTuple):
    """One run of a study."""

    study: str
    name: str
    config: Config


def _trial(study: str, row: str, epochs: int, of_all: dict[str, Any] | None = None, /, **changes: Any) -> Trial:
    """A recipe as it was, with changes, which name the run; those ``of_all`` runs of the study do not."""
    said = " ".join([row, f"epochs={epochs}", *(f"{name}={value}" for name, value in changes.items())])
    fixed = {"holdout": HELD_OUT, "calibration_share": 0.0, "eval_every": _NEVER}
    fixed |= {"average_flips": True, "average_shifts": 0}
    start = STARTS.get(row, {})
    if "augmentation" in changes:  # it has settings of its own
        start = {name: value for name, value in start.items() if name not in _OF_AUGMENTATION}
    return Trial(study, said, recipe(row, epochs=epochs, **fixed | start | (of_all or {}) | changes))


def cifar10() -> Iterator[Trial]:
    """CIFAR-10: the decay for V-MCR², and whether exact MCR² gains from carried rows."""
    study, gentle = "row-cifar10", {"batch_expansion": 0.1, "weight_decay": 5e-4, "decay_all": True}
    for own in ({}, {"weight_decay": 1e-3}):
        yield _trial(study, "cifar10-vmcr2", 300, **gentle | own)
    for memory in (0, 20_000):
        yield _trial(study, "cifar10-mcr2", 150, memory=memory)


def cifar10_recipes() -> Iterator[Trial]:
    """CIFAR-10 in 150 epochs: codes, decay, rate, crops and forces for every objective."""
    flat_codes = NARROW | flat(12)
    decayed = flat_codes | {"weight_decay": 2e-3}
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "vmcr2": (
            *(NARROW, NARROW | {"weight_decay": 2e-3}, decayed | {"crop_padding": 8}),
            *(flat_codes | {"weight_decay": decay} for decay in (5e-4, 1e-3, 2e-3, 4e-3)),
            *(decayed | own for own in ({"lr": 0.3}, {"focus": 10.0}, {"codes_trace": 4.0})),
            *(decayed | {"batch_expansion": beta} for beta in (0.05, 0.2)),
        ),
        "mcr2": (
            *(NARROW, NARROW | {"memory": 0}, NARROW | {"memory": 40_000}),
            *(NARROW | {"weight_decay": 2e-3}, NARROW | {"lr": 0.3}, NARROW | {"lr": 0.3, "weight_decay": 2e-3}),
        ),
        "ce": (
            *({}, NARROW, NARROW | {"lr": 0.5}, NARROW | {"lr": 0.5, "weight_decay": 1e-3}),
            NARROW | MIXUP,
        ),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield _trial(f"row-cifar10-{objective}", f"cifar10-{objective}", 150, **own)


def cifar10_longer() -> Iterator[Trial]:
    """CIFAR-10 in 300 epochs: focus for V-MCR², which then fits all it trains on; mixed pictures for cross-entropy."""
    focused = flat(12) | {"weight_decay": 2e-3, "focus": 10.0}
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "vmcr2": (
            *(focused | {"focus": value} for value in (3.0, 10.0, 30.0, 100.0)),
            *(focused | {"weight_decay": 4e-3}, focused | {"focus": 30.0, "weight_decay": 1e-3}),
            *({"focus": 10.0, "weight_decay": 2e-3}, focused | PARTS),
        ),
        "ce": (MIXUP, PARTS | MIXUP, NARROW | CUTMIX),
        "mcr2": (NARROW | {"lr": 0.03}, NARROW | {"weight_decay": 1e-4}),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield _trial(f"row-cifar10-{objective}-longer", f"cifar10-{objective}", 300, **own)


def cifar10_next() -> Iterator[Trial]:
    """CIFAR-10: more ΔR for V-MCR², mixed pictures with focus, how long is long enough, and views to average."""
    study, far = "row-cifar10-next", flat(12) | {"weight_decay": 2e-3, "focus": 100.0}
    ways: tuple[dict[str, Any], ...] = (
        *({"codes_trace": 4.0}, {"weight_decay": 1.5e-3}, {"batch_expansion": 0.2}),
        *(NARROW | CUTMIX, {"crop_padding": 6}),
    )
    calm: dict[str, Any] = {"weight_decay": 1e-4}
    yield _trial(study, "cifar10-vmcr2", 600, **far)
    for own in (NARROW | calm, calm):
        yield _trial(study, "cifar10-mcr2", 600, **own)
    yield _trial(study, "cifar10-vmcr2", 400, **far)
    for own in ways:
        yield _trial(study, "cifar10-vmcr2", 300, **far | own)
    yield _trial(study, "cifar10-mcr2", 400, **NARROW | calm | {"batch_size": 2000})
    yield _trial(study, "cifar10-ce", 300, **NARROW | CUTMIX)
    # mixed pictures cannot be carried: a batch must hold more of a class than the class has dimensions
    yield _trial(study, "cifar10-mcr2", 400, **NARROW | CUTMIX | calm | {"batch_size": 2000, "memory": 0})


def focus() -> Iterator[Trial]:
    """CIFAR-10 with focus in 15 epochs on a CPU: alone, with the decay that it bears, and with flat codes."""
    focused: dict[str, Any] = {"focus": 10.0}
    decay: dict[str, Any] = {"weight_decay": 2e-3}
    spread = decay | flat(12)
    # few steps: a shorter mean, and latching that happens at all
    short: dict[str, Any] = {"average": 0.99, "latch_every": 5, "precision": "bfloat16"}
    for own in ({}, focused, focused | decay, focused | spread, spread):
        yield _trial("focus-cifar10-short", "cifar10-vmcr2", 15, short, **own)


def preact() -> Iterator[Trial]:
    """PreAct ResNet-18 on Tiny ImageNet: with and without focus; rates for cross-entropy."""
    study = "row-tiny-imagenet-preact"
    for value in (3.0, 0.0):
        yield _trial(study, "tiny-imagenet-preact-vmcr2", 50, focus=value)
    for lr in (0.5, 1.0):
        yield _trial(study, "tiny-imagenet-preact-ce", 50, lr=lr)
    yield _trial(study, "tiny-imagenet-preact-ce", 100, lr=1.0)
    yield _trial(study, "tiny-imagenet-preact-vmcr2", 100, focus=3.0)


def preact_cifar100() -> Iterator[Trial]:
    """PreAct ResNet-18 on CIFAR-100: fewer epochs, and mixed pictures."""
    study = "row-cifar100-preact"
    for own in ({}, CUTMIX):
        yield _trial(study, "cifar100-preact-vmcr2", 200, focus=3.0, components=2, **own)
        yield _trial(study, "cifar100-preact-ce", 200, **own)


def narrower() -> Iterator[Trial]:
    """CIFAR-100: crops from a border of 4 pixels, parts of the picture, mixed pictures, for every side."""
    study, focused = "levers-cifar100-narrow", flat(5) | {"focus": 3.0}
    as_ce: dict[str, Any] = {"flip": True, "decay_all": True}
    for own in ({"crop_padding": 8}, NARROW | MIXUP):
        yield _trial(study, "cifar100-ce+mcr2", 400, **own | as_ce)
    for own in (NARROW, PARTS):
        yield _trial(study, "cifar100-ce+mcr2", 300, **own | as_ce)
    yield _trial(study, "cifar100-ce+vmcr2", 300, **NARROW | as_ce | focused)
    yield _trial(study, "cifar100-vmcr2", 300, **PARTS | focused | {"lr": 0.3, "weight_decay": 2e-3})
    for own in (NARROW, PARTS):
        yield _trial(study, "cifar100-ce", 300, **own)
    yield _trial(study, "cifar100-ce", 400, **NARROW | MIXUP)


def cifar100() -> Iterator[Trial]:
    """CIFAR-100: cross-entropy, composed objectives and V-MCR² with the same levers."""
    study = "levers-cifar100"
    for own in ({}, MIXUP, CUTMIX):
        yield _trial(study, "cifar100-ce", 200, **own)
    as_ce: dict[str, Any] = {"flip": True, "crop_padding": 8, "decay_all": True}
    for own in ({}, CUTMIX):
        yield _trial(study, "cifar100-ce+vmcr2", 200, **as_ce | own)
    yield _trial(study, "cifar100-ce+mcr2", 200, **as_ce)


def tiny_imagenet() -> Iterator[Trial]:
    """Tiny ImageNet: random parts of the picture, or mirroring alone as in the paper."""
    study, mirrored = "row-tiny-imagenet", {"augmentation": "flip"}
    for objective in ("vmcr2", "ce"):
        for own in ({}, mirrored):
            yield _trial(study, f"tiny-imagenet-{objective}", 100, **own)


def tiny_imagenet_more() -> Iterator[Trial]:
    """Tiny ImageNet: what was taken from CIFAR-100 by analogy, and flat codes for its ΔR."""
    study = "row-tiny-imagenet-more"
    ways: dict[str, tuple[dict[str, Any], ...]] = {
        "vmcr2": ({"batch_expansion": 0.15}, flat(5) | {"focus": 3.0, "lr": 0.3, "weight_decay": 2e-3}),
        "ce": ({"lr": 0.5}, {"weight_decay": 1e-3}),
        "mcr2": ({},),
    }
    for objective, changes in ways.items():
        for own in changes:
            yield _trial(study, f"tiny-imagenet-{objective}", 100, **own)


def tiny_imagenet_next() -> Iterator[Trial]:
    """Tiny ImageNet: flat codes with focus for longer, with mirroring alone for ΔR; exact MCR² with calmer steps."""
    study, mirrored = "row-tiny-imagenet-next", {"augmentation": "flip"}
    focused = flat(5) | {"lr": 0.3, "focus": 3.0, "weight_decay": 2e-3}
    for own in ({}, {"focus": 10.0, "weight_decay": 1e-3}, mirrored):
        yield _trial(study, "tiny-imagenet-vmcr2", 200, **focused | own)
    yield _trial(study, "tiny-imagenet-ce", 200, lr=0.5)
    for own in (mirrored, {"weight_decay": 1e-4}):
        yield _trial(study, "tiny-imagenet-mcr2", 100, **own)
    yield _trial(study, "tiny-imagenet-mcr2", 250, **mirrored | {"weight_decay": 1e-4})
