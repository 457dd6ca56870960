"""Batches of S samples of each of P classes in a run: what a step sees, and how many steps an epoch has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from digits_trainer import CPU, quick
from seeds import SEED

from vmcr2._shared import UserError
from vmcr2.data import ClassBatchSampler, open_data
from vmcr2.runs import Trainer, fit
from vmcr2.training import Step


def trainer(**changes: Any) -> Trainer:
    return Trainer(quick("vmcr2", calibration_share=0.0, **changes), open_data("digits"), CPU)


def test_a_run_sees_the_batches_of_the_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    original = Step.__call__

    def call(step: Step) -> None:
        seen.append(step.index.clone())
        original(step)

    monkeypatch.setattr(Step, "__call__", call)
    config = quick("ce", calibration_share=0.0, batch_size=160, samples_per_class=20, epochs=2)
    run = fit(config, out=tmp_path / "run")
    labels = open_data("digits").train().labels
    sampler = ClassBatchSampler(labels, classes_per_batch=8, samples_per_class=20, seed=SEED)
    assert torch.equal(torch.stack(seen), torch.tensor([batch for _ in range(2) for batch in sampler]))
    assert len(seen) == 2 * len(sampler)
    for batch in seen:
        assert sorted(labels[batch].bincount(minlength=10).tolist()) == [0, 0, *([20] * 8)]
    assert run.summary["test_accuracy"] > 0.5  # of ten classes, after two epochs; 0.86 and more over ten seeds


@pytest.mark.parametrize("each", [5, 100])
def test_a_captured_step_has_room_for_these_rows_and_classes(each: int) -> None:
    made = trainer(batch_size=4 * each, samples_per_class=each, block=True)
    assert made.objective.capacity == made.objective.module.max_class_size == each
    assert made.objective.module.max_classes == 4
    assert made.steps_per_epoch == made.loop(0, print).steps_per_epoch == len(made.order(0)) // (4 * each)


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="multiple of samples_per_class, got 100 and 7: use batch_size 98"):
        quick("ce", batch_size=100, samples_per_class=7)
    with pytest.raises(UserError, match="the data have 10: use at most 10, that is batches of 50"):
        trainer(batch_size=100, samples_per_class=5)
