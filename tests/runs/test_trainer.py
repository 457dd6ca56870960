"""The trainer's lines of metrics, what it measures a run by, and what it leaves where training broke."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_trainer import CPU, prepared, quick, train
from safetensors.torch import load_file
from seeds import SEED
from torch import Tensor, nn

import vmcr2
from vmcr2.data import open_data
from vmcr2.functional import rate_reduction
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs import RunFolder, Trainer, TrainingError, UserError, evaluate_run, fit
from vmcr2.runs._checkpoint import Position, load_checkpoint
from vmcr2.training import Step

CROPS = {"augmentation": "crop", "crop_padding": 1}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


# ---- lines of metrics


@pytest.mark.parametrize(
    ("epochs", "changes", "expected"),
    [
        (5, {}, [1, 2, 3, 4, 5]),
        (250, {}, [1, *range(3, 250, 3), 250]),  # about 100
        (10, {"log_every": 3}, [1, 3, 6, 9, 10]),
        (1, {"log_every": 100}, [1]),
        (10, {"log_every": 100, "eval_every": 4}, [1, 4, 8, 10]),
    ],
)
def test_lines_of_metrics(epochs: int, changes: dict[str, Any], expected: list[int]) -> None:
    made = Trainer(quick("ce", **{"epochs": epochs, "eval_every": 0} | changes), open_data("digits"), CPU)
    loop = made.loop(0, pytest.fail)
    records = {epoch: made.record(Position(epoch, 3 * epoch, 1.0), 0.5, loop) for epoch in range(1, epochs + 1)}
    assert [epoch for epoch, record in records.items() if record] == expected
    every = changes.get("eval_every")
    measured = [epoch for epoch, record in records.items() if "train_delta_r" in record]
    assert measured == ([epoch for epoch in expected if epoch % every == 0 and epoch < epochs] if every else [])


def test_with_a_hold_out_a_run_is_measured_ten_times_on_the_way() -> None:
    made = Trainer(quick("ce", epochs=40, eval_every=0, log_every=40, holdout=200), open_data("digits"), CPU)
    loop = made.loop(0, pytest.fail)
    records = [made.record(Position(epoch, epoch, 1.0), 0.5, loop) for epoch in range(1, 41)]
    held = [record["epoch"] for record in records if "holdout_accuracy" in record]
    assert held == list(range(4, 40, 4))  # the end has the whole evaluation


def test_a_line_says_where_the_run_stands() -> None:
    made = Trainer(quick("mcr2"), open_data("digits"), CPU)
    loop = made.loop(0, pytest.fail)
    record = made.record(Position(1, 3, 7.5), 0.5, loop)
    assert (record["epoch"], record["step"], record["seconds"]) == (1, 3, 7.5)
    assert record["images_per_second"] == 3 * 431 / 0.5
    assert {"lr", "loss", "expansion", "compression", "batch_delta_r"} <= set(record)


def test_metrics_are_made_before_latching(tmp_path: Path) -> None:
    """Right after latching M is a hundredth of what it is between: the curve would have dips that no step made.

    Over five seeds the lines before a latching are within 15 % of one between two.
    """
    run = fit(quick(epochs=60, latch_every=20, log_every=10, eval_every=0), out=tmp_path / "run")
    gaps = {line["epoch"]: line["mismatch"] for line in RunFolder(run.folder).read_metrics()}
    assert min(gaps[20], gaps[40]) > 0.3 * gaps[30]


# ---- what does not work


class PoisonAfter:
    """Spoils something once an epoch is over, as a bug or an overflow would."""

    def __init__(self, epoch: int, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        original = Step.__call__

        def call(step: Step) -> None:
            if step.draw.item() >= epoch:
                if name == "weights":
                    next(step.network.parameters()).data.fill_(float("inf"))
                else:
                    getattr(step.objective.module, name).fill_(float("nan"))
            original(step)

        monkeypatch.setattr(Step, "__call__", call)


@pytest.mark.parametrize(
    ("name", "named"), [("weights", "the features"), ("dictionary", "dictionary"), ("codes", "codes")]
)
def test_what_breaks_is_named_and_the_checkpoint_is_from_before(
    name: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PoisonAfter(2, monkeypatch, name)
    with pytest.raises(
        TrainingError, match=f"broke in epoch 3, not finite: .*{named}.*; the checkpoint, if there is one"
    ):
        fit(quick(), out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert [record["epoch"] for record in folder.read_metrics()] == [1, 2]
    assert not folder.finished
    whole = Trainer(quick(), open_data("digits"), CPU)
    assert load_checkpoint(folder, whole.step, warnings.warn).epoch == 2
    assert all(torch.isfinite(parameter).all() for parameter in whole.network.parameters())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 1}, "BatchNorm needs at least two samples: set batch_size to at least 2"),
        ({"mean": (0.5, 0.5), "std": (1.0, 1.0)}, "these settings do not fit the images of digits"),
        ({"model": "mpl"}, "mlp"),
        ({"holdout": 1437}, "holdout must lie between 1 and 1436"),
    ],
)
def test_settings_that_cannot_work_leave_no_folder(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = quick("ce")
    if "model" in changes:
        config = config.replace(hidden=(256, 256))  # which acts with an MLP alone
    with pytest.raises(UserError, match=said):
        fit(config.replace(**changes), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_bfloat16_trains_on_a_cpu_too(tmp_path: Path) -> None:
    run = fit(quick("ce", epochs=20, precision="bfloat16"), out=tmp_path / "run")
    assert run.summary["test_accuracy"] > 0.8  # 0.93 to 0.96 over five seeds
    assert next(run.model.parameters()).dtype == torch.float32


# ---- a mean of the weights


def with_dropout(*_: Any, **__: Any) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.Dropout(0.5), vmcr2.models.MLP(64, 32, (32,), batch_norm=True)
    )


@pytest.mark.parametrize("objective", ["vmcr2", "ce"])
def test_the_steps_do_not_depend_on_the_mean(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on measuring by it: with dropout, random numbers would tell."""
    monkeypatch.setattr("vmcr2.models._settings.build", with_dropout)
    own = {"latch_every": 2} if objective == "vmcr2" else {}
    config = quick(objective, epochs=4, eval_every=1, **own, **CROPS)
    checkpoints = []
    for average in (0.0, 0.9):
        run = fit(config.replace(average=average), out=tmp_path / str(average))
        checkpoints.append(load_file(run.folder / "checkpoint" / "last.safetensors"))
    without, averaged = checkpoints
    assert not [name for name in without if name.startswith("average.")]
    assert_same(without, {name: value for name, value in averaged.items() if not name.startswith("average.")})
    assert averaged["average.steps"] == 12


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_keeps_and_reports_the_mean(objective: str, tmp_path: Path) -> None:
    run = fit(quick(objective, average=0.8, schedule="constant", **CROPS), out=tmp_path / "run")
    checkpoint = load_file(run.folder / "checkpoint" / "last.safetensors")
    kept = {f"model.{name}": value for name, value in load_file(run.folder / "model.safetensors").items()}
    has_head = objective.startswith("ce")
    if has_head:
        learned = load_file(run.folder / "objective.safetensors")
        kept |= {f"objective.{name}": value for name, value in learned.items()}
    means = [
        name.removeprefix("average.") for name in checkpoint if name.startswith("average.") and "steps" not in name
    ]
    assert any(name.endswith("head.weight") for name in means) == has_head
    for name in means:
        assert torch.equal(kept[name], checkpoint[f"average.{name}"]), name
        assert not torch.equal(kept[name], checkpoint[name]), name
    in_memory = {f"model.{name}": value for name, value in run.model.state_dict().items()}
    assert_same(in_memory, {name: value for name, value in kept.items() if name.startswith("model.")})
    again = evaluate_run(run.folder, device="cpu")
    assert again == {name: run.summary[name] for name in again}


def test_figures_on_the_way_are_of_the_mean() -> None:
    made = prepared("vmcr2", epochs=4, average=0.9, eval_every=1, hidden=(32,), seed=SEED, **CROPS)
    for draw in range(6):
        train(made, draw)

    def delta_r() -> float:
        labels = made.step.samples.labels
        return rate_reduction(made.step.embed().double(), labels, 10, eps_sq=0.5).delta.item()

    record = made.record(Position(2, 6, 1.0), 1.0, made.loop(0, pytest.fail))
    with made.step.measured():
        assert record["train_delta_r"] == delta_r()
    assert record["train_delta_r"] != pytest.approx(delta_r(), rel=1e-3)


def test_a_run_killed_before_its_evaluation_ends_the_same(tmp_path: Path) -> None:
    """Then no epoch is left to train, and nothing of one lies in the step's buffers."""
    config = quick("ce", epochs=3, average=0.8, **CROPS)
    whole = fit(config, out=tmp_path / "run")
    kept = load_file(whole.folder / "model.safetensors")
    (whole.folder / "summary.json").unlink()
    (whole.folder / "model.safetensors").unlink()
    resumed = fit(config, out=tmp_path / "run", resume=True)
    assert_same(load_file(whole.folder / "model.safetensors"), kept)
    assert json.dumps(resumed.summary) == json.dumps(whole.summary)
