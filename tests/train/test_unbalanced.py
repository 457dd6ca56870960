"""Classes that are far larger than others, where a step's shapes must not depend on the labels at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from unbalanced_digits import UnbalancedDigits

from vmcr2 import MCR2Loss
from vmcr2.data import Source
from vmcr2.functional._linalg import Guard
from vmcr2.losses import VMCR2Loss
from vmcr2.train import Run, fit, recipe
from vmcr2.train._folder import RunFolder
from vmcr2.train._objective import build_objective, class_room

SETTINGS: dict[str, dict[str, Any]] = {
    "vmcr2": {},
    "mcr2": {},
    "mcr2 with a memory": {"memory": 300},
    "ce": {},
}


def trained(name: str, out: Path) -> Run:
    config = recipe(
        "digits", objective=name.split(maxsplit=1)[0], epochs=3, batch_size=150, device="cpu", **SETTINGS[name]
    )
    return fit(config, out=out, source=cast(Source, UnbalancedDigits()))


@pytest.mark.parametrize("name", SETTINGS)
def test_shapes_as_on_a_gpu_train_what_free_ones_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = trained(name, tmp_path / "free")
    monkeypatch.setattr(Guard, "static", lambda guard, _: not guard.validate and not guard.synchronises)
    fixed = trained(name, tmp_path / "fixed")
    assert fixed.summary["train_delta_r"] == pytest.approx(free.summary["train_delta_r"], rel=1e-3)
    said = [[line["batch_delta_r"] for line in RunFolder(run.folder).read_metrics()] for run in (free, fixed)]
    assert said[1] == pytest.approx(said[0], rel=1e-3)


def test_even_classes_keep_the_losses_own_room() -> None:
    even = torch.arange(50_000) % 100
    assert class_room(even, 100, 2000) is None
    mnist = torch.arange(10).repeat_interleave(
        torch.tensor([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    )
    assert class_room(mnist, 10, 1000) is None


def test_the_room_is_for_the_largest_class_and_the_memory_s_rows() -> None:
    labels = torch.tensor([0] * 900 + [1] * 100)
    assert class_room(labels, 10, 100) == 90 + 57 + 6
    for rows, settings in ((400, {"objective": "mcr2", "memory": 300}), (100, {"objective": "vmcr2"})):
        objective = build_objective(recipe("digits", batch_size=100, **settings), labels, 10)
        assert isinstance(objective, MCR2Loss | VMCR2Loss)
        assert objective.max_class_size == class_room(labels, 10, rows)
