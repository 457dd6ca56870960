"""Classes that are far larger than others, where a step's shapes must not depend on the labels at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from seeds import SEED
from unbalanced_digits import UnbalancedDigits

from vmcr2.data import Source
from vmcr2.functional import Guard, class_capacity
from vmcr2.objectives import MCR2Settings, ObjectiveSettings, VMCR2Settings
from vmcr2.objectives._objective import batch_capacity
from vmcr2.runs import Run, RunFolder, fit, recipe

SETTINGS: dict[str, dict[str, Any]] = {
    "vmcr2": {},
    "mcr2": {},
    "mcr2 with a memory": {"memory": 300},
    "ce": {},
}


def trained(name: str, out: Path) -> Run:
    small = {"epochs": 3, "batch_size": 150, "hidden": (48,), "dim": 32, "eval_every": 0, "seed": SEED}
    config = recipe("digits", objective=name.split(maxsplit=1)[0], device="cpu", **small, **SETTINGS[name])
    return fit(config, out=out, source=cast(Source, UnbalancedDigits()))


@pytest.mark.parametrize("name", SETTINGS)
def test_shapes_as_on_a_gpu_train_what_free_ones_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = trained(name, tmp_path / "free")
    monkeypatch.setattr(Guard, "static", lambda guard, _: not guard.validate and not guard.synchronises)
    fixed = trained(name, tmp_path / "fixed")
    assert fixed.summary["train_delta_r"] == pytest.approx(free.summary["train_delta_r"], rel=1e-4)
    said = [[line["batch_delta_r"] for line in RunFolder(run.folder).read_metrics()] for run in (free, fixed)]
    assert said[1] == pytest.approx(said[0], rel=1e-4)


def test_even_classes_keep_the_losses_own_room() -> None:
    even = torch.arange(50_000) % 100
    assert batch_capacity(even, 100, 2000) is None
    sizes = torch.tensor([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])  # MNIST
    assert batch_capacity(torch.arange(10).repeat_interleave(sizes), 10, 1000) is None


def test_the_room_is_for_the_largest_class_and_the_memory_s_rows() -> None:
    labels = torch.tensor([0] * 900 + [1] * 100)
    assert batch_capacity(labels, 10, 100) == 90 + 57 + 6 == class_capacity(90, deviations=6.0)
    cases: list[tuple[int, ObjectiveSettings]] = [
        (400, MCR2Settings(memory=300)),
        (100, MCR2Settings()),
        (100, VMCR2Settings(atoms_per_class=1)),
    ]
    for rows, settings in cases:
        objective = settings.build(10, 16, labels, 100)
        assert objective.module.max_class_size == batch_capacity(labels, 10, rows)
        assert objective.capacity == batch_capacity(labels, 10, 100)


def test_the_rates_of_a_batch_of_one_class_fit_in() -> None:
    """Beside the loss, the log needs room too: on a GPU a class beyond it would set the fault."""
    labels = torch.tensor([0] * 90 + [1] * 10)
    objective = VMCR2Settings(atoms_per_class=1).build(10, 16, labels, 50)
    assert objective.capacity is not None
    assert objective.capacity >= 50
