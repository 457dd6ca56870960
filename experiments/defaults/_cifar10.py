"""Studies that choose CIFAR-10's recipes. ``focus-cifar10-short`` is for two cores of a CPU, half an hour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._trial import CUTMIX, MIXUP, NARROW, PARTS, Trial, flat, trial


def trials() -> Iterator[Trial]:
    """All of them, study by study."""
    yield from _first()
    yield from _recipes()
    yield from _longer()
    yield from _next()
    yield from _mixed()
    yield from _focus()


def _first() -> Iterator[Trial]:
    """The decay for V-MCR², and whether exact MCR² gains from carried rows."""
    study, gentle = "row-cifar10", {"batch_expansion": 0.1, "weight_decay": 5e-4, "decay_all": True}
    for own in ({}, {"weight_decay": 1e-3}):
        yield trial(study, "cifar10-vmcr2", 300, **gentle | own)
    for memory in (0, 20_000):
        yield trial(study, "cifar10-mcr2", 150, memory=memory)


def _recipes() -> Iterator[Trial]:
    """150 epochs: codes, decay, rate, crops and forces for every objective."""
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
            yield trial(f"row-cifar10-{objective}", f"cifar10-{objective}", 150, **own)


def _longer() -> Iterator[Trial]:
    """300 epochs: focus for V-MCR², which then fits all it trains on; mixed pictures for cross-entropy."""
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
            yield trial(f"row-cifar10-{objective}-longer", f"cifar10-{objective}", 300, **own)


def _next() -> Iterator[Trial]:
    """More ΔR for V-MCR², mixed pictures with focus, how long is long enough, and views to average."""
    study, far = "row-cifar10-next", flat(12) | {"weight_decay": 2e-3, "focus": 100.0}
    ways: tuple[dict[str, Any], ...] = (
        *({"codes_trace": 4.0}, {"weight_decay": 1.5e-3}, {"batch_expansion": 0.2}),
        *(NARROW | CUTMIX, {"crop_padding": 6}),
    )
    calm: dict[str, Any] = {"weight_decay": 1e-4}
    yield trial(study, "cifar10-vmcr2", 600, **far)
    for own in (NARROW | calm, calm):
        yield trial(study, "cifar10-mcr2", 600, **own)
    yield trial(study, "cifar10-vmcr2", 400, **far)
    for own in ways:
        yield trial(study, "cifar10-vmcr2", 300, **far | own)
    yield trial(study, "cifar10-mcr2", 400, **NARROW | calm | {"batch_size": 2000})
    yield trial(study, "cifar10-ce", 300, **NARROW | CUTMIX)
    # without a memory a batch must hold more of a class than the class has dimensions
    yield trial(study, "cifar10-mcr2", 400, **NARROW | CUTMIX | calm | {"batch_size": 2000, "memory": 0})


def _mixed() -> Iterator[Trial]:
    """Mixed pictures for longer, with other crops and for exact MCR², and its decay in long runs.

    The longest come first: they end last where several train at a time.
    """
    study, far = "row-cifar10-mixed", flat(12) | {"weight_decay": 2e-3, "focus": 100.0}
    cut = NARROW | CUTMIX
    yield trial(study, "cifar10-mcr2", 600, **cut | {"weight_decay": 1e-4, "soft_memory": True})
    yield trial(study, "cifar10-mcr2", 800, **cut | {"weight_decay": 1e-4, "batch_size": 4000, "memory": 0})
    yield trial(study, "cifar10-vmcr2", 600, **far | cut)
    for own in (NARROW, NARROW | {"weight_decay": 2e-5}):
        yield trial(study, "cifar10-mcr2", 600, **own)
    yield trial(study, "cifar10-ce", 600, **cut)
    for own in (cut | {"batch_expansion": 0.2}, CUTMIX, PARTS | CUTMIX, NARROW | MIXUP):
        yield trial(study, "cifar10-vmcr2", 300, **far | own)


def _focus() -> Iterator[Trial]:
    """Focus in 15 epochs on a CPU: alone, with the decay that it bears, and with flat codes."""
    focused: dict[str, Any] = {"focus": 10.0}
    decay: dict[str, Any] = {"weight_decay": 2e-3}
    spread = decay | flat(12)
    # few steps: a shorter mean, and latching that happens at all
    short: dict[str, Any] = {"average": 0.99, "latch_every": 5, "precision": "bfloat16"}
    for own in ({}, focused, focused | decay, focused | spread, spread):
        yield trial("focus-cifar10-short", "cifar10-vmcr2", 15, short, **own)
