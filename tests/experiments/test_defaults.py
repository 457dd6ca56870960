"""The studies of the rule: each run is named once, made once, and looks at test images only where it may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.defaults import __main__ as command, _maker, _views, studies as of
from experiments.defaults._lines import line_of, missing
from experiments.defaults._maker import Maker
from experiments.defaults.studies import Trial, decided, lines_of, ruled, settings_of, studies
from vmcr2.data import Source
from vmcr2.runs import Config

STUDIES = studies()
HELD_OUT = [name for name in STUDIES if name not in ("battery", "noise")]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One study, of two short runs on digits: one with a hold-out, one with the test images. The folder of results."""
    small = {"epochs": 2, "hidden": (16,), "dim": 20, "device": "cpu"}
    trials = [
        Trial("tiny", "digits held out", ruled("digits", "ce+mcr2", holdout=200, **small)),
        Trial("tiny", "digits ce", ruled("digits", "ce", **small)),
    ]
    for module in (command, of):
        monkeypatch.setattr(module, "studies", lambda: {"tiny": trials})
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def kept(results: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (results / "tiny.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("study", STUDIES)
def test_its_runs_have_names_and_settings_of_their_own(study: str) -> None:
    trials = STUDIES[study]
    assert {trial.study for trial in trials} == {study}
    assert len({trial.name for trial in trials}) == len(trials)
    settings = [json.dumps(decided(trial.config), sort_keys=True) for trial in trials]
    assert len(set(settings)) == len(trials)
    folders = {trial.name.replace(" ", "_").replace("=", "") for trial in trials}
    assert len(folders) == len(trials)


def test_names_say_what_is_in_them() -> None:
    for trials in STUDIES.values():
        for trial in trials:
            if trial.study != "recipe-cifar10":
                assert trial.config.objective.name in [word.split("-")[-1] for word in trial.name.split(" ")]
            assert trial.config.data.name in f"{trial.study} {trial.name}"


@pytest.mark.parametrize("study", STUDIES)
def test_settings_are_chosen_on_held_out_images(study: str) -> None:
    assert {trial.config.data.holdout > 0 for trial in STUDIES[study]} == {study in HELD_OUT}


@pytest.mark.parametrize("study", STUDIES)
def test_settings_read_back_from_json(study: str) -> None:
    for trial in STUDIES[study]:
        flat = json.loads(json.dumps(decided(trial.config)))
        assert decided(Config.from_flat(flat)) == flat


@pytest.mark.parametrize("study", STUDIES)
def test_every_line_says_what_was_run_and_what_came_out(study: str) -> None:
    for line in lines_of(study):
        assert {"data", "objective", "lr", "epochs", "seed"} <= set(line["settings"]), line["name"]
        assert ("test_accuracy" in line) != ("holdout_accuracy" in line), line["name"]
        assert ("holdout_accuracy" in line) == (study in HELD_OUT), line["name"]
        assert isinstance(line["train_delta_r"], float), line["name"]


@pytest.mark.parametrize("study", STUDIES)
def test_every_line_is_of_a_run_that_the_study_has_now(study: str) -> None:
    """A changed recipe must not change what a study was."""
    settings = [decided(trial.config) for trial in STUDIES[study]]
    assert [line["name"] for line in lines_of(study) if settings_of(line) not in settings] == []


def test_what_has_a_line_is_not_made_again(
    tiny: Path, in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command to the line, and back."""
    trials = command.studies()["tiny"]
    assert missing(trials) == trials
    command.main(["tiny", "--runs", str(tmp_path / "runs"), "--only", "* held *"])
    (line,) = kept(tiny)
    assert (line["name"], line["settings"]) == ("digits held out", decided(trials[0].config))
    assert {"holdout_accuracy", "head_accuracy", "readout", "train_delta_r", "git_commit"} <= set(line)
    assert "test_accuracy" not in line
    assert missing(trials) == trials[1:]
    command.main(["tiny", "--runs", str(tmp_path / "runs")])
    assert [line["name"] for line in kept(tiny)] == ["digits held out", "digits ce"]
    assert "test_accuracy" in kept(tiny)[1]
    capsys.readouterr()
    command.main(["tiny", "--runs", str(tmp_path / "runs")])
    assert "0 runs" in capsys.readouterr().out
    assert len(kept(tiny)) == 2
    other = [trial._replace(config=trial.config.replace(lr=0.01)) for trial in trials]
    assert missing(other) == other  # other settings are another run
    assert not list((tmp_path / "runs").rglob("model.safetensors"))


def test_a_run_with_a_hold_out_cannot_open_the_test_images(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, whole = command.studies()["tiny"]
    readings: list[str] = []
    train = Source.train

    def curious(self: Source) -> object:
        try:
            self.test()
            readings.append("open")
        except Exception as error:
            readings.append(type(error).__name__)
        return train(self)

    monkeypatch.setattr(Source, "train", curious)
    make = Maker(tmp_path / "runs")
    assert make(held, lambda: False).lost is None
    assert readings
    assert "open" not in readings
    readings.clear()
    assert make(whole, lambda: False).lost is None
    assert set(readings) == {"open"}


def test_a_run_is_measured_by_many_views_as_the_run_itself_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view of the run's own settings has its own figures: the same features, subspaces and head."""
    config = ruled("digits", "ce+mcr2", holdout=200, epochs=5, hidden=(32,), dim=20, device="cpu", average_flips=True)
    trial = Trial("tiny", "digits seen", config)
    monkeypatch.setattr(_maker, "BY_VIEWS", ("tiny",))
    monkeypatch.setattr(_views, "VIEWS", ((False, 0), (True, 0), (True, 2), (True, 3)))  # a digit has 8 pixels
    outcome = Maker(tmp_path / "runs")(trial, lambda: False)
    figures = outcome.figures
    views = figures["holdout_by_views"]
    own = views["mirrored 0"]
    assert own["subspace"] == figures["holdout_accuracy"]
    assert own["head"] == figures["head_accuracy"]
    assert own["delta_r"] == pytest.approx(figures["train_delta_r"], rel=1e-4)
    assert len({view["delta_r"] for view in views.values()}) == len(views), "other views, other features"
    assert line_of(trial, outcome)["holdout_by_views"] == views
    # a kill took the line: the weights are gone, the figures are not
    assert not list((tmp_path / "runs").rglob("model.safetensors"))
    assert Maker(tmp_path / "runs")(trial, lambda: False).figures["holdout_by_views"] == views


def test_what_cannot_be_measured_by_views_is_a_lost_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no dead worker: the next run gets the same one."""
    trial = Trial("tiny", "digits seen", ruled("digits", "ce", holdout=200, epochs=1, hidden=(32,), device="cpu"))
    monkeypatch.setattr(_maker, "BY_VIEWS", ("tiny",))
    monkeypatch.setattr(_views, "VIEWS", ((False, 5),))  # of 8 pixels
    outcome = Maker(tmp_path / "runs")(trial, lambda: False)
    assert outcome.lost is not None
    assert outcome.lost.startswith("average_shifts must be at most 3")


def test_the_tables_of_the_pages_are_those_of_the_results() -> None:
    from experiments.defaults.table import pages, written

    for path, contents in pages().items():
        assert written(path.read_text(), contents) == path.read_text(), f"python -m experiments.defaults.table: {path}"


def test_a_page_without_its_marks_is_said() -> None:
    from experiments.defaults.table import written

    with pytest.raises(SystemExit, match="must have the marks"):
        written("no marks", {"battery": "a table"})
