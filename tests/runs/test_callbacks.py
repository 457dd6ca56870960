"""Callbacks: what they are told and when, that they can end a run, and that an error of theirs loses nothing."""

from __future__ import annotations

import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_trainer import CPU, quick
from run_files import metrics, same, timeless, weights

import vmcr2
from vmcr2.data import open_data
from vmcr2.runs import Callback, Config, Run, RunFolder, Trainer, TrainingError, fit, load_run, read_position
from vmcr2.runs._callbacks import Callbacks


class Diary(Callback):
    """Writes down everything, and does in ``epoch`` what it is given."""

    def __init__(self, act: Any = lambda record: None) -> None:
        self.said: list[Any] = []
        self.act = act

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        assert (folder / "config.json").exists()
        self.said.append(("started", config.optim.epochs, folder.name, first_epoch))

    def epoch(self, record: dict[str, Any]) -> bool | None:
        self.said.append(record["epoch"])
        return self.act(record)  # type: ignore[no-any-return]

    def note(self, text: str) -> None:
        self.said.append(text)

    def finished(self, run: Run) -> None:
        assert RunFolder(run.folder).finished
        self.said.append(("finished", run.summary["epochs"]))

    def failed(self, error: BaseException) -> None:
        self.said.append(("failed", type(error)))


def broken(record: dict[str, Any]) -> None:
    if record["epoch"] == 3:
        raise ValueError("the disk of the log is full")


# ---- what they are told


def test_the_life_of_a_run(tmp_path: Path) -> None:
    diary = Diary()
    run = fit(quick("ce", log_every=2), out=tmp_path / "run", callbacks=[diary])
    assert diary.said == [("started", 6, "run", 0), 1, 2, 4, 6, ("finished", 6)]
    diary.said.clear()
    assert fit(run.config, out=tmp_path / "run", resume=True, callbacks=[diary]).summary == run.summary
    assert diary.said == [], "nothing happened"


def test_a_record_is_a_line_of_metrics_and_a_callback_s_own(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def spoil(record: dict[str, Any]) -> None:
        seen.append(dict(record))
        record.clear()

    one, two = Diary(spoil), Diary(lambda record: seen.append(record))
    run = fit(quick("ce", holdout=200), out=tmp_path / "run", callbacks=[one, two])
    lines = metrics(run.folder)
    assert seen[::2] == seen[1::2] == lines
    always = {"epoch", "step", "seconds", "images_per_second", "lr", "loss", "expansion", "compression"}
    assert all(always | {"batch_delta_r"} <= set(line) for line in lines)
    measured = {"train_delta_r", "holdout_accuracy", "holdout_head_accuracy"}
    assert [line["epoch"] for line in lines if measured <= set(line)] == [2, 4]


def test_any_object_with_some_of_the_methods(tmp_path: Path) -> None:
    seen: list[Any] = []
    only_epochs = types.SimpleNamespace(epoch=lambda record: seen.append(record["epoch"]))
    only_the_end = types.SimpleNamespace(finished=lambda run: seen.append(run.folder))
    fit(quick("ce", epochs=2), out=tmp_path / "run", callbacks=(one for one in (only_epochs, only_the_end)))
    assert seen == [1, 2, tmp_path / "run"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Diary(), "write callbacks=[…]"),
        (5, "callbacks takes a list"),
        ([Diary], r"write Diary\(\)"),
        ([object()], "it has none of the methods started, epoch, note, finished, failed"),
    ],
)
def test_what_is_no_callback(wrong: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=words.replace("[", r"\[")):
        fit(quick("ce"), out=tmp_path / "run", callbacks=wrong)
    assert not (tmp_path / "run").exists()


def test_a_problem_is_a_warning_unless_somebody_takes_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_epochs() -> list[Any]:
        return [types.SimpleNamespace(epoch=lambda record: record["loss"]), Callback()]

    monkeypatch.setattr(Trainer, "problem", lambda *_: "collapsed")
    with pytest.warns(vmcr2.CollapseWarning, match="epoch 2: collapsed"):  # they do not hide it
        fit(quick("ce"), out=tmp_path / "one", callbacks=only_epochs())
    diary = Diary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(quick("ce"), out=tmp_path / "two", callbacks=[*only_epochs(), diary])
    assert [text for text in diary.said if isinstance(text, str)] == ["epoch 2: collapsed"]


# ---- ending a run


def test_true_ends_the_run_properly(tmp_path: Path) -> None:
    """At a constant rate and without latching on the way it is then the run of so few epochs."""
    config = quick("ce", schedule="constant")
    diary = Diary(lambda record: record["epoch"] == 3)
    run = fit(config, out=tmp_path / "run", callbacks=[Diary(), diary])
    assert diary.said[-2:] == ["a callback stopped the run after epoch 3", ("finished", 3)]
    assert (run.summary["epochs"], run.summary["planned_epochs"], run.summary["stopped_by"]) == (3, 6, "callback")
    short = fit(config.replace(epochs=3), out=tmp_path / "short")
    assert same(weights(run.folder), weights(short.folder))
    ended = {"planned_epochs", "stopped_by"}
    assert {name: value for name, value in timeless(run).items() if name not in ended} == timeless(short)
    assert load_run(run.folder).summary == run.summary
    assert fit(config, out=run.folder, resume=True).summary == run.summary  # it stays as it is


def test_a_run_that_ended_early_is_judged_by_its_own_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 9 steps nobody expects much; 180, as planned, would be a collapsed run."""
    config = quick("mcr2", epochs=60, eval_every=0)
    trainer = Trainer(config, open_data("digits"), CPU)
    assert "collapsed" in (trainer.problem(0.1, 0.05) or "")
    assert trainer.problem(0.1, 0.05, 3) is None
    monkeypatch.setattr("vmcr2.runs._trainer.diagnose", lambda *_, **__: "collapsed")
    run = fit(config, out=tmp_path / "run", callbacks=[Diary(lambda record: record["epoch"] == 3)])
    assert "warning" not in run.summary


def test_true_in_the_last_epoch_is_no_news(tmp_path: Path) -> None:
    run = fit(quick("ce", epochs=2), out=tmp_path / "run", callbacks=[Diary(lambda record: record["epoch"] == 2)])
    assert "stopped_by" not in run.summary


def test_a_run_that_was_ended_and_killed_while_measured_does_not_train_on(tmp_path: Path) -> None:
    diary = Diary(lambda record: record["epoch"] == 3)
    run = fit(quick("vmcr2"), out=tmp_path / "run", callbacks=[diary])
    before = weights(run.folder)
    for name in ("summary.json", "model.safetensors", "objective.safetensors"):
        (run.folder / name).unlink()
    again = fit(quick("vmcr2"), out=tmp_path / "run", resume=True)
    assert again.summary == run.summary
    assert same(weights(run.folder), before)


# ---- errors


def test_an_error_in_a_callback_comes_after_a_checkpoint(tmp_path: Path) -> None:
    config = quick("vmcr2", latch_every=3, checkpoint_seconds=1e6)
    whole = fit(config, out=tmp_path / "whole")
    first, later = Diary(broken), Diary()
    with pytest.raises(ValueError, match="the log is full"):
        fit(config, out=tmp_path / "run", callbacks=[first, later])
    assert later.said[-2:] == [3, ("failed", ValueError)], "the others do not miss the epoch"
    assert read_position(tmp_path / "run" / "checkpoint" / "last.safetensors").epoch == 3
    resumed = Diary()
    run = fit(config, out=tmp_path / "run", resume=True, callbacks=[resumed])
    assert resumed.said == [("started", 6, "run", 3), 4, 5, 6, ("finished", 6)]
    assert same(weights(run.folder), weights(whole.folder))
    assert [line["epoch"] for line in metrics(run.folder)] == [1, 2, 3, 4, 5, 6]


def test_an_error_at_the_end_leaves_a_finished_run(tmp_path: Path) -> None:
    class AtTheEnd:
        def finished(self, run: Run) -> None:
            raise ValueError("no mail server")

    diary = Diary()
    with pytest.raises(ValueError, match="mail"):
        fit(quick("ce", epochs=1), out=tmp_path / "run", callbacks=[AtTheEnd(), diary])
    assert diary.said[-1] == ("finished", 1)
    assert load_run(tmp_path / "run").summary["epochs"] == 1


def test_failed_hears_of_every_end_and_cannot_hide_it(tmp_path: Path) -> None:
    class Worse:
        def failed(self, error: BaseException) -> None:
            raise OSError("and the pipe is closed")

    diary = Diary()
    with pytest.warns(UserWarning, match="broke in failed"), pytest.raises(TrainingError):
        fit(quick("ce", lr=1e30), out=tmp_path / "run", callbacks=[Worse(), diary])
    assert diary.said == [("started", 6, "run", 0), ("failed", TrainingError)]


@pytest.mark.parametrize(
    ("answer", "stops"),
    [(True, True), (np.bool_(True), True), (torch.tensor(True), True), (1.0, False), (None, False), ("yes", False)],
)
def test_any_library_s_true_ends_a_run(answer: Any, stops: bool) -> None:
    class Says:
        def epoch(self, record: dict[str, Any]) -> Any:
            return answer

    assert Callbacks([Says()]).epoch({"epoch": 1}) == stops
