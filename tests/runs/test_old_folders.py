"""Run folders that vmcr2 0.1 made: they load, predict, are evaluated and reported, and a stopped one goes on.

Figures may differ from those of another CPU: accuracies by two images, where features lie between two classes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import metrics

from vmcr2.data import open_data
from vmcr2.report import page, read_run
from vmcr2.runs import RunFolder, UserError, evaluate_run, fit, load_run, read_position

OLD = Path(__file__).parent / "old_folders"
FINISHED = ["vmcr2", "ce"]
IMAGES = {"test": 360, "train": 1437, "head": 360}


NEW = ("readout", "readout_accuracy", "calibration_samples")
"""Figures of a summary that old folders do not have."""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the folder that the test names."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def contents(folder: Path) -> dict[str, bytes]:
    """But for the lock, which is new and means nothing by itself."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_near(found: dict[str, Any], expected: dict[str, Any], *, images: int = 2, rel: float = 1e-4) -> None:
    """Accuracies within so many images, other figures relatively."""
    for name, value in found.items():
        if name.endswith("accuracy"):
            share = (images + 0.5) / IMAGES[name.partition("_")[0]]
            assert value == pytest.approx(expected[name], abs=share), name
        else:
            assert value == pytest.approx(expected[name], rel=rel, abs=rel), name


@pytest.mark.parametrize("folder", FINISHED, indirect=True)
def test_a_finished_run_loads_and_predicts(folder: Path) -> None:
    run = load_run(folder, device="cpu")
    test = open_data("digits").test()
    assert run.summary == json.loads((folder / "summary.json").read_text())
    assert run.config.objective.name == folder.name
    assert (run.config.model.hidden, run.config.model.dim, run.config.run.seed) == ((24,), 20, 3)
    predicted = run.predict(test.images, labels=True)
    right = int((predicted == test.labels).sum())
    assert abs(right - round(run.summary["test_accuracy"] * 360)) <= 2
    if folder.name == "ce":
        with torch.no_grad():
            by_head = run.objective.predict(run.features(test.images))  # type: ignore[operator]
        assert abs(int((by_head == test.labels).sum()) - round(run.summary["head_accuracy"] * 360)) <= 2
    else:
        assert run.objective.dictionary.shape == (20, 20)
        assert bool(run.objective.latched)


@pytest.mark.parametrize("folder", FINISHED, indirect=True)
def test_a_finished_run_is_evaluated_again(folder: Path) -> None:
    before = contents(folder)
    found = evaluate_run(folder, device="cpu")
    expected = json.loads((folder / "summary.json").read_text())
    assert_near(found, expected)
    assert set(expected) - set(found) == {"epochs", "seconds", "train_images", "test_images", "parameters"}
    assert contents(folder) == before


@pytest.mark.parametrize("folder", FINISHED, indirect=True)
def test_a_finished_run_is_returned_as_it_is(folder: Path) -> None:
    before = contents(folder)
    run = fit(RunFolder(folder).read_config(), out=folder, resume=True)
    assert run.summary == json.loads(before["summary.json"])
    assert contents(folder) == before


@pytest.mark.parametrize("folder", [*FINISHED, "mcr2"], indirect=True)
def test_every_folder_is_reported(folder: Path) -> None:
    before = contents(folder)
    record = read_run(folder)
    assert record.problems == ()
    assert record.epochs_done == 4
    assert record.deciding["lr"] == {"vmcr2": 0.3, "ce": 1.0, "mcr2": 0.03}[folder.name]
    assert "sharpness" not in record.deciding
    text = page([record])
    assert record.objective_name in text
    assert record.recipe in text
    if folder.name in FINISHED:
        assert f"{record.summary['test_accuracy']:.4f}" in text  # type: ignore[index]
    assert contents(folder) == before


def test_they_are_reported_together_and_told_apart(tmp_path: Path) -> None:
    records = [read_run(shutil.copytree(OLD / name, tmp_path / name)) for name in (*FINISHED, "mcr2")]
    text = page(records)
    for record in records:
        assert record.recipe in text


@pytest.mark.parametrize("folder", ["mcr2"], indirect=True)
def test_a_stopped_run_goes_on_to_the_end(folder: Path) -> None:
    before = metrics(folder)
    config = RunFolder(folder).read_config()
    done = read_position(RunFolder(folder).checkpoint).epoch
    assert (done, len(before)) == (3, 4)  # the stop came between a line and its checkpoint
    with pytest.raises(UserError, match="the run did not finish"):
        load_run(folder)
    run = fit(config, out=folder, resume=True)
    lines = metrics(folder)
    assert lines[:done] == before[:done]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    again, first = lines[done], before[done]
    assert again.keys() == first.keys()
    figures = {name: value for name, value in again.items() if not name.endswith(("seconds", "second"))}
    assert_near(figures, first, rel=1e-3)
    expected = json.loads((OLD / "mcr2-expected-summary.json").read_text())
    assert run.summary["readout"] == run.readout == "subspace"  # it has no head
    figures = {name: value for name, value in run.summary.items() if name not in ("seconds", *NEW)}
    # fifteen steps later another CPU's rounding has grown
    assert_near(figures, expected, rel=1e-3)
    assert set(run.summary) == set(expected) | set(NEW)
    assert load_run(folder, device="cpu").summary == run.summary


@pytest.mark.parametrize("folder", ["mcr2"], indirect=True)
def test_a_stopped_run_goes_on_with_its_own_settings_alone(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(UserError, match="was started with other settings"):
        fit(RunFolder(folder).read_config().replace(lr=0.5), out=folder, resume=True)
    assert contents(folder) == before
