"""What a run predicts by, and what it says if it did not separate the classes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import in_process
from digits_trainer import quick

from vmcr2 import CollapseWarning
from vmcr2.data import open_data
from vmcr2.report import page, read_run
from vmcr2.runs import Config, Run, UserError, _trainer, fit, load_run
from vmcr2.runs._measure import choose_readout

OLD = Path(__file__).parent / "old_folders"
Finished = Callable[[str], Run]


# ---- the read-out


@pytest.mark.parametrize(
    ("asked", "figures", "chosen"),
    [
        ("auto", {"test_accuracy": 0.9}, "subspace"),
        ("auto", {"test_accuracy": 0.9, "head_accuracy": 0.5}, "head"),  # test images choose nothing
        ("auto", {"holdout_accuracy": 0.9, "head_accuracy": 0.5}, "subspace"),
        ("auto", {"holdout_accuracy": 0.5, "head_accuracy": 0.9}, "head"),
        ("auto", {"holdout_accuracy": 0.7, "head_accuracy": 0.7}, "head"),
        ("head", {"holdout_accuracy": 0.9, "head_accuracy": 0.5}, "head"),
        ("subspace", {"test_accuracy": 0.5, "head_accuracy": 0.9}, "subspace"),
    ],
)
def test_it_is_chosen_on_held_out_images_or_is_the_head(asked: str, figures: dict[str, Any], chosen: str) -> None:
    assert choose_readout(asked, figures) == chosen


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2"])
def test_predictions_follow_it_also_after_loading(objective: str, finished: Finished) -> None:
    test = open_data("digits").test()
    made = finished(objective)
    assert made.summary["readout"] == made.readout == ("head" if objective.startswith("ce") else "subspace")
    assert (made.head is None) == (made.readout == "subspace")
    for run in (made, load_run(made.folder, device="cpu")):
        features = run.features(test.images)
        if run.head is not None:
            with torch.no_grad():
                assert torch.equal(run.predict(test.images, labels=True), run.head(features).argmax(1))
        else:
            assert torch.equal(run.predict(test.images, labels=True), run.classifier.predict(features))


@pytest.mark.parametrize("readout", ["head", "subspace"])
def test_what_is_asked_for_is_kept(readout: str, tmp_path: Path) -> None:
    test = open_data("digits").test()
    run = fit(quick("ce+mcr2", epochs=2, readout=readout), out=tmp_path / "run")
    by = {"head": "head_accuracy", "subspace": "test_accuracy"}[readout]
    for one in (run, load_run(run.folder, device="cpu")):
        assert one.readout == readout
        assert (one.predict(test.images, labels=True) == test.labels).double().mean().item() == run.summary[by]


def test_with_a_hold_out_it_is_the_better_one_there(tmp_path: Path) -> None:
    summary = fit(quick("ce", holdout=200, epochs=2), out=tmp_path / "run").summary
    better = "subspace" if summary["holdout_accuracy"] > summary["head_accuracy"] else "head"
    assert summary["readout"] == better


def test_a_head_that_is_not_there_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="readout is head, but mcr2 has no head: leave it out"):
        fit(quick("mcr2", readout="head"), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_runs_of_earlier_versions_predict_by_the_subspace() -> None:
    run = load_run(OLD / "ce", device="cpu")
    images = open_data("digits").test().images
    assert "readout" not in run.summary
    assert run.readout == "subspace"
    assert run.head is not None
    assert torch.equal(run.predict(images, labels=True), run.classifier.predict(run.features(images)))


# ---- classes that were not separated


class Ears:
    """Hears everything."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def started(self, config: Config, folder: Path, first_epoch: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


ILL = {"epochs": 40, "lr": 1e-12, "weight_decay": 0.0, "eval_every": 0}
"""A run that learns nothing, in 120 steps."""


@pytest.fixture
def unwell(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a run whose features stay parallel: BatchNorm is off, and a common part drowns the rest."""

    class Parallel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(64, 32)
            torch.nn.init.constant_(self.linear.bias, 100.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.normalize(self.linear(x.flatten(1)), dim=1)

    monkeypatch.setattr("vmcr2.models._settings.build", lambda *_, **__: Parallel())
    return ILL


def test_a_collapsed_run_says_so_once_and_for_ever(unwell: dict[str, Any], tmp_path: Path) -> None:
    ears = Ears()
    run = fit(quick("mcr2", **unwell), out=tmp_path / "run", callbacks=[ears])
    said = run.summary["warning"]
    assert said.startswith("collapsed: all features point almost the same way")
    assert "--objective auto" in said
    assert "\n" not in said
    (note,) = ears.notes
    assert note == f"epoch 8: {note.removeprefix('epoch 8: ')}"  # after a fifth of the run
    assert "collapsed" in note
    assert json.loads((run.folder / "summary.json").read_text())["warning"] == said
    assert "collapsed: all features point almost the same way" in page([read_run(run.folder)])


def test_where_nobody_listens_it_is_a_warning(unwell: dict[str, Any], tmp_path: Path) -> None:
    with pytest.warns(CollapseWarning, match="collapsed") as caught:
        fit(quick("mcr2", **unwell), out=tmp_path / "run")
    assert len([one for one in caught if issubclass(one.category, CollapseWarning)]) == 1


def test_a_run_that_has_learned_nothing_is_stalled(tmp_path: Path) -> None:
    """From labels that say nothing. ΔR is 0.017 to 0.024 of its maximum over five seeds, and a tenth is the line."""
    ears = Ears()
    run = fit(quick("mcr2", label_noise=1.0, **ILL), out=tmp_path / "run", callbacks=[ears])
    assert run.summary["warning"].startswith("stalled: ΔR is ")
    assert ears.notes == [run.summary["warning"]]


def test_cross_entropy_and_short_runs_are_not_judged(unwell: dict[str, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "warning" not in fit(quick("ce", **unwell), out=tmp_path / "ce").summary
        few = 33
        assert 3 * few < _trainer._ENOUGH_STEPS <= 3 * unwell["epochs"]
        assert "warning" not in fit(quick("mcr2", **unwell | {"epochs": few}), out=tmp_path / "short").summary


def test_a_healthy_run_has_none(tmp_path: Path) -> None:
    """ΔR is 0.79 to 0.86 of its maximum over five seeds, and a tenth is the line."""
    ears = Ears()
    for objective in ("mcr2", "ce+mcr2"):
        run = fit(quick(objective, epochs=40, eval_every=0), out=tmp_path / objective, callbacks=[ears])
        assert "warning" not in run.summary
        assert "did not separate" not in page([read_run(run.folder)])
    assert ears.notes == []


def test_the_command_line_says_it(unwell: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [f"{name}={value}" for name, value in {**unwell, "dim": 32, "hidden": 32}.items() if name != "epochs"]
    words = [word for text in small for word in ("--set", text)]
    command = ("train", "digits", "--objective", "mcr2", "--epochs", "40", *words)
    plain = in_process(*command, "--out", "plain")
    assert plain.code == 0
    assert plain.out.count("collapsed: all features point almost the same way") == 1
    as_json = in_process(*command, "--out", "json", "--json")
    assert json.loads(as_json.out)["warning"].startswith("collapsed")
    assert as_json.err.count("collapsed") == 1
