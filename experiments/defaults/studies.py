"""The runs of every study: settings by the rule, and what a run changes.

``corner-…`` look for λ, decay and rate on 5,000 held-out training images. ``battery`` and ``noise`` read the test
images, once, at the end of each run, and choose nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmcr2.functional import default_components
from vmcr2.runs import Config, recipe

from . import _cifar10, _cifar100, _tiny_imagenet
from ._trial import HELD_OUT, STARTS, Trial, flat

RESULTS = Path(__file__).parents[1] / "results" / "defaults"
PICTURES = {"digits": 10, "mnist": 10, "cifar10": 10, "cifar100": 100, "tiny-imagenet": 200}
OBJECTIVES = ("ce", "ce+mcr2", "vmcr2", "mcr2", "ce+vmcr2")
LEVELS = (0.4, 0.2, 0.0)
EPOCHS = 200
FEWER = 100
"""Epochs of a study that compares settings."""
NOISY = 60
"""Epochs with wrong labels."""


def ruled(data: str, objective: str, **changes: Any) -> Config:
    """The rule's settings for a GPU, whatever machine this is asked on. All training images are trained on."""
    return recipe("auto", data=data, objective=objective, **{"epochs": EPOCHS, "calibration_share": 0.0} | changes)


def corner(data: str) -> Iterator[Trial]:
    """Accuracy against ΔR on held-out images, for every objective."""
    dim = ruled(data, "ce").model.dim
    changes: list[tuple[str, dict[str, Any]]] = [("ce", {}), ("ce", {"weight_decay": 2e-3}), ("mcr2", {})]
    changes += [("ce+mcr2", {"rate_weight": share / dim}) for share in (3, 10, 30)]
    changes += [("ce+mcr2", {"rate_weight": share / dim, "lr": 0.3}) for share in (10, 30)]
    changes += [("ce+vmcr2", {"rate_weight": share / dim}) for share in (100, 30)]
    changes += [("vmcr2", {"weight_decay": 2e-3}), ("vmcr2", {"weight_decay": 5e-4})]
    if PICTURES[data] > 10:
        pairs = ((0.02, 20_000), (0.03, 20_000), (0.04, 20_000), (0.03, 10_000), (0.012, 0))
        changes += [("ce+mcr2", {"rate_weight": weight, "memory": memory}) for weight, memory in pairs]
    for objective, own in changes:
        said = " ".join(f"{name}={value:g}" for name, value in own.items())
        yield Trial(f"corner-{data}", f"{objective} {said}".strip(), _held_out(data, objective, own))


def _held_out(data: str, objective: str, changes: dict[str, Any]) -> Config:
    return ruled(data, objective, epochs=FEWER, holdout=HELD_OUT, **changes)


def focused() -> Iterator[Trial]:
    """Would the rule gain from flat codes and focus? As in the corner, where the rule's own runs are."""
    for data in ("cifar10", "cifar100"):
        atoms = default_components(ruled(data, "vmcr2").model.dim, PICTURES[data])
        for objective, value in (("vmcr2", 3.0), ("vmcr2", 10.0), ("ce+vmcr2", 3.0)):
            config = _held_out(data, objective, flat(atoms) | {"focus": value})
            yield Trial("rule-focus", f"{data} {objective} focus={value:g}", config)


def recipes() -> Iterator[Trial]:
    """Two decays for the recipe cifar10-vmcr2, which has the paper's augmentation."""
    for decay, everywhere in ((2e-3, False), (5e-4, True)):
        own: dict[str, Any] = {"weight_decay": decay, "decay_all": everywhere, "epochs": EPOCHS, "holdout": HELD_OUT}
        own |= {"calibration_share": 0.0, "average_flips": False, "average_shifts": 0}
        name = f"cifar10 weight_decay={decay:g} decay_all={everywhere}"
        yield Trial("recipe-cifar10", name, recipe("cifar10-vmcr2", **STARTS["cifar10-vmcr2"] | own))


def line() -> Iterator[Trial]:
    """How many samples of a class a batch must hold: digits, with room for twelve dimensions per class; on a CPU."""
    for batch, objective in itertools.product((20, 40, 80, 160, 320), ("ce+mcr2", "ce+vmcr2", "mcr2", "vmcr2")):
        own = {"batch_size": batch, "epochs": 40, "holdout": 287}
        yield Trial("line", f"digits batch={batch} {objective}", ruled("digits", objective, **own))


def battery() -> Iterator[Trial]:
    """The rule alone on every set of pictures; ``auto`` is one of these."""
    for objective, data in itertools.product(OBJECTIVES, PICTURES):  # the most important first
        yield Trial("battery", f"{data} {objective}", ruled(data, objective))


def noise() -> Iterator[Trial]:
    """Wrong training labels."""
    for objective, data, level in itertools.product(OBJECTIVES[:4], ("cifar10", "cifar100"), LEVELS):
        config = ruled(data, objective, epochs=NOISY, label_noise=level)
        yield Trial("noise", f"{data} {level:g} {objective}", config)


def studies() -> dict[str, list[Trial]]:
    """All by name."""
    found = [*corner("cifar10"), *corner("cifar100"), *focused(), *recipes(), *line(), *battery(), *noise()]
    for room in (_cifar10, _cifar100, _tiny_imagenet):
        found += room.trials()
    return {study: list(trials) for study, trials in itertools.groupby(found, key=lambda trial: trial.study)}


def lines_of(study: str) -> list[dict[str, Any]]:
    """The results so far, in the order in which the runs ended."""
    path = RESULTS / f"{study}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def decided(config: Config) -> dict[str, Any]:
    """The settings that decide a result, as JSON has them."""
    settings: dict[str, Any] = json.loads(json.dumps(config.deciding()))
    return settings


def settings_of(line: dict[str, Any]) -> dict[str, Any]:
    """The same of a result, also if it is older than some settings, which were then as their defaults are."""
    return decided(Config.from_flat(line["settings"]))
