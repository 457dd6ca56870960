"""Early stopping: when a run stops, that it keeps the best weights, and that a kill changes nothing of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from digits_trainer import CPU, quick
from run_files import metrics, same, timeless, weights, without_clocks
from safetensors.torch import load_file

from vmcr2.data import open_data
from vmcr2.runs import Config, RunFolder, Trainer, UserError, evaluate_run, fit, read_position
from vmcr2.runs._checkpoint import Position
from vmcr2.runs._early_stopping import EarlyStopping

CROPS = {"augmentation": "crop", "crop_padding": 1}


def patient(objective: str = "ce", **changes: Any) -> Config:
    """A run on few samples, whose held-out accuracy stops to rise after 2 to 33 epochs (six seeds)."""
    usual = {"epochs": 100, "eval_every": 0, "holdout": 1200, "batch_size": 79, "patience": 6, "log_every": 7}
    return quick(objective, **usual | changes)


def expected_end(lines: list[dict[str, Any]], patience: int, by: str) -> tuple[int, int]:
    """(the last epoch, the best one), from the lines of a run, as a person would read them."""
    best = (0, -1.0)
    for line in lines:
        if by in line:
            if line[by] > best[1]:
                best = line["epoch"], line[by]
            if line["epoch"] - best[0] >= patience:
                return line["epoch"], best[0]
    return lines[-1]["epoch"], best[0]


class Interrupt:
    """Stands for a kill: this exception is not for callbacks to raise, and nothing is saved."""

    def __init__(self, epoch: int) -> None:
        self.at = epoch

    def epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] >= self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("objective", "changes", "by"),
    [
        ("ce", {"readout": "head"}, "holdout_head_accuracy"),
        ("ce", {"readout": "subspace", "average": 0.9, **CROPS}, "holdout_accuracy"),
        ("vmcr2", {"latch_every": 4}, "holdout_accuracy"),
    ],
)
def test_a_run_stops_keeps_its_best_weights_and_outlasts_kills(
    objective: str, changes: dict[str, Any], by: str, tmp_path: Path
) -> None:
    config = patient(objective, **changes)
    run = fit(config, out=tmp_path / "run")
    end, best = expected_end(metrics(run.folder), 6, by)
    assert end < 100, "the settings of this test must let the run stop"
    said = {name: run.summary.get(name) for name in ("epochs", "planned_epochs", "stopped_by", "best_epoch")}
    assert said == {"epochs": end, "planned_epochs": 100, "stopped_by": "patience", "best_epoch": best}
    at_best = next(line for line in metrics(run.folder) if line["epoch"] == best)
    assert run.summary["readout_accuracy"] == at_best[by]
    assert run.summary["train_delta_r"] == at_best["train_delta_r"]  # of the same weights
    if not config.optim.average:  # else the file holds the mean
        kept = {f"model.{name}": value for name, value in run.model.state_dict().items()}
        best_state = load_file(run.folder / "checkpoint" / "best.safetensors")
        assert same({name: best_state[name] for name in kept}, kept)
    for index, stop in enumerate((best, best + 1, end)):
        folder = tmp_path / f"killed-{index}"
        with pytest.raises(KeyboardInterrupt):
            fit(config.replace(checkpoint_seconds=1e6), out=folder, callbacks=[Interrupt(stop)])
        resumed = fit(config.replace(checkpoint_seconds=1e6), out=folder, resume=True)
        assert timeless(resumed) == timeless(run)
        assert same(weights(resumed.folder), weights(run.folder))
        assert without_clocks(resumed.folder) == without_clocks(run.folder)


def test_a_run_killed_while_it_is_measured_does_not_train_on(tmp_path: Path) -> None:
    run = fit(patient(), out=tmp_path / "run")
    before = weights(run.folder)
    for name in ("summary.json", "model.safetensors"):
        (run.folder / name).unlink()
    again = fit(patient(), out=tmp_path / "run", resume=True)
    assert again.summary == run.summary
    assert same(weights(run.folder), before)


def test_a_run_that_makes_all_its_epochs_keeps_the_best_of_them(tmp_path: Path) -> None:
    run = fit(patient(epochs=8, patience=8), out=tmp_path / "run")
    end, best = expected_end(metrics(run.folder), 8, "holdout_head_accuracy")
    assert (run.summary["epochs"], run.summary["best_epoch"]) == (end, best) == (8, best)
    assert "stopped_by" not in run.summary
    assert "holdout_head_accuracy" in metrics(run.folder)[-1], "the last epoch counts too"
    assert evaluate_run(run.folder, device="cpu")["train_delta_r"] == run.summary["train_delta_r"]


def test_an_early_end_is_not_the_checkpoint(tmp_path: Path) -> None:
    """The checkpoint is of the last epoch, to go on from; the weights are the best ones."""
    run = fit(patient(), out=tmp_path / "run")
    assert read_position(RunFolder(run.folder).checkpoint).epoch == run.summary["epochs"] > run.summary["best_epoch"]


def test_as_good_is_not_better(tmp_path: Path) -> None:
    """Patience counts from the first of equal measurements, and the readout that counts is the better one."""
    made = Trainer(patient(patience=2), open_data("digits"), CPU)
    folder = RunFolder(tmp_path)
    folder.best.parent.mkdir()
    early = EarlyStopping(made.config, folder, made.step, since=0)
    figures = [(0.5, 0.6), (0.7, 0.1), (0.6, 0.7), (0.0, 0.0)]
    lines = [
        {"epoch": epoch, "holdout_accuracy": subspace, "holdout_head_accuracy": head}
        for epoch, (subspace, head) in enumerate(figures, start=1)
    ]
    assert [early.look(line) for line in lines] == [False, False, False, True]
    assert early.best == EarlyStopping(made.config, folder, made.step, since=0).best == (2, 0.7)
    extended = EarlyStopping(made.config, folder, made.step, since=3)
    assert [extended.look({**lines[3], "epoch": epoch}) for epoch in (4, 5)] == [False, True]
    assert not early.look({"epoch": 9}), "an epoch without a measurement says nothing"


@pytest.mark.parametrize(
    ("patience", "eval_every", "expected"),
    [(6, 0, 1), (20, 0, 4), (20, 2, 2), (20, 50, 4), (1000, 0, 6)],
)
def test_how_often_a_patient_run_is_measured(patience: int, eval_every: int, expected: int) -> None:
    made = Trainer(patient(epochs=60, patience=patience, eval_every=eval_every), open_data("digits"), CPU)
    loop = made.loop(0, pytest.fail)
    records = [made.record(Position(epoch, epoch, 1.0), 0.5, loop) for epoch in range(1, 61)]
    measured = [record["epoch"] for record in records if "holdout_head_accuracy" in record]
    gaps = {later - earlier for earlier, later in itertools.pairwise([0, *measured])}
    assert max(gaps) == expected
    assert measured[-1] == 60


def test_patience_needs_something_held_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"patience is 5, but nothing is held out to measure on: set holdout"):
        fit(quick("ce", patience=5), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_patience_decides_and_with_it_how_often_a_run_is_measured() -> None:
    def deciding(**changes: Any) -> dict[str, Any]:
        return quick("ce", holdout=100, **changes).deciding()

    assert deciding(patience=3) != deciding()
    assert deciding(eval_every=1) == deciding(eval_every=2)
    assert deciding(patience=3, eval_every=1) != deciding(patience=3, eval_every=2)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = in_process("train", "--patience", "3", "--out", "run")
    assert (said.code, said.out) == (2, "")
    assert "patience is 3, but nothing is held out" in said.err
    few = ("--objective", "ce", "--holdout", "1200", "--set", "batch_size=79", "--epochs", "90")
    said = in_process("train", *few, "--patience", "3", "--out", "run")
    assert (said.code, said.err) == (0, "")
    summary = json.loads(Path("run/summary.json").read_text())
    end, best = summary["epochs"], summary["best_epoch"]
    sentence = f"stopped after epoch {end}: the held-out accuracy was best after epoch {best}, whose weights are kept"
    assert said.out.count(sentence) == 1
    assert f"epochs, seconds of training         {end} of 90, " in said.out
    said = in_process("train", "--resume", "--out", "run", "--epochs", "90")
    assert said.err == f"vmcr2: run stopped by itself after epoch {end} of 90: give --epochs above 90\n"
    assert "was already finished" in in_process("train", "--resume", "--out", "run").out
