"""Training: what is learned on known data, that a run is its seed, and that a killed run ends as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vmcr2
from vmcr2.data import DATASETS, Source, Split, open_data
from vmcr2.data._digits import DigitsReader
from vmcr2.functional import maximal_rate_reduction
from vmcr2.train import Config, TrainingError, UserError, evaluate_run, fit, recipe
from vmcr2.train import _loop as loop

ROOT = Path(vmcr2.__file__).parent.parent
QUICK = {"epochs": 6, "eval_every": 2, "checkpoint_seconds": 0.0}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors") | {
        f"objective.{name}": value
        for name, value in (
            load_file(folder / "objective.safetensors") if (folder / "objective.safetensors").exists() else {}
        ).items()
    }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("objective", "least"), [("vmcr2", 0.98), ("mcr2", 0.97), ("ce", 0.97)])
def test_digits_are_learned(objective: str, least: float, tmp_path: Path) -> None:
    run = fit(recipe("digits", objective=objective), out=tmp_path / "run")
    assert run.summary["test_accuracy"] >= least
    if objective == "vmcr2":
        assert run.summary["train_delta_r"] >= 40
        assert run.summary["within_cosine"] >= 5 * run.summary["between_cosine"]
    if objective == "ce":
        assert run.summary["head_accuracy"] >= least
    assert evaluate_run(tmp_path / "run")["test_accuracy"] == run.summary["test_accuracy"]
    evaluation = tmp_path / "run" / "evaluation.safetensors"
    assert evaluation.stat().st_size < 16 * 2**20
    confusion = load_file(evaluation)["confusion"]
    assert confusion.trace() / confusion.sum() == pytest.approx(run.summary["test_accuracy"])


def subspace_source() -> Source:
    """Three classes on orthogonal planes of 12×1 «images», and a little noise: ΔR of the data is known."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        labels = torch.arange(count) % 3
        pixels = torch.full((count, 12), 20.0)
        for j in range(3):
            members = labels == j
            pixels[members, 4 * j : 4 * j + 4] += 200 * torch.rand(int(members.sum()), 4, generator=generator)
        return Split(pixels.round().to(torch.uint8).reshape(count, 1, 4, 3), labels)

    splits = {"train": split(600), "test": split(150)}

    class Reader:
        path, class_names = None, ("a", "b", "c")

        def read(self, part: str) -> Split:
            return splits[part]

        def checksum(self, part: str) -> str:
            return part

    class Planes(Source):
        @property
        def image_shape(self) -> tuple[int, int, int]:
            return (1, 4, 3)

    return Planes("planes", None, ("a", "b", "c"), Reader())  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_known_subspaces_are_separated(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = subspace_source()
    monkeypatch.setattr(loop, "open_data", lambda name, path: source)
    monkeypatch.setattr("vmcr2.train._load.build", lambda *_, **__: vmcr2.models.MLP(12, 12, (64,), batch_norm=True))
    monkeypatch.setattr("vmcr2.train._step.plain", lambda images, index, size: images[index].float() / 255)
    rate = {"vmcr2": 0.3, "mcr2": 0.03, "ce": 0.3}[objective]
    config = Config(
        objective=objective,
        dim=12,
        atoms_per_class=4,
        batch_size=200,
        epochs=80,
        lr=rate,
        schedule="cosine",
        loss_scale=0.05 if objective == "vmcr2" else 1.0,
        batch_expansion=0.3,
        debias=True,
        latch_every=20,
    )
    run = fit(config, out=tmp_path / "run")
    assert run.summary["test_accuracy"] > 0.98
    if objective != "ce":
        assert run.summary["train_delta_r"] > 0.7 * maximal_rate_reduction(12, 3)
        assert run.summary["train_delta_r"] <= maximal_rate_reduction(12, 3) + 1e-6


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_a_run_is_its_seed(objective: str, tmp_path: Path) -> None:
    config = recipe("digits", objective=objective, **QUICK)
    one, two = (fit(config, out=tmp_path / name) for name in ("one", "two"))
    other = fit(config.replace(seed=1), out=tmp_path / "other")
    assert same(weights(one.folder), weights(two.folder))
    assert not same(weights(one.folder), weights(other.folder))
    without = fit(config.replace(eval_every=0, checkpoint_seconds=100.0), out=tmp_path / "unwatched")
    assert same(weights(one.folder), weights(without.folder))  # looking changes nothing


class StopAfter:
    """Stands for a kill: the exception leaves the folder as it is at that moment."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        self.first = first_epoch

    def epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] == self.last:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        raise AssertionError(text)


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"objective": "vmcr2", "latch_every": 2}, 3),
        ({"objective": "vmcr2", "latch_every": 4, "latch_unit": "steps", "weight_end": 40.0}, 1),
        ({"objective": "mcr2", "optimizer": "adamw", "lr": 1e-3, "nesterov": False}, 4),
        ({"objective": "mcr2", "batch_size": 400, "memory": 900}, 3),  # which has wrapped around by then
        ({"objective": "ce", "augmentation": "crop", "crop_padding": 1, "warmup_epochs": 2.0}, 5),
        ({"objective": "ce", "augmentation": "crop", "crop_padding": 1, "average": 0.9}, 4),
        ({"objective": "vmcr2", "sharpness": 0.05}, 5),
        ({"objective": "vmcr2", "fresh_statistics": True, "latch_every": 2}, 5),
    ],
)
def test_a_stopped_run_ends_bit_identical(changes: dict[str, Any], stop: int, tmp_path: Path) -> None:
    config = recipe("digits", **QUICK, **changes)
    whole = fit(config, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "stopped", listener=StopAfter(stop))
    assert not (tmp_path / "stopped" / "summary.json").exists()
    watcher = StopAfter(-1)
    resumed = fit(config, out=tmp_path / "stopped", resume=True, listener=watcher)
    assert watcher.first == stop - 1  # the checkpoint of the epoch before: a real resumption
    assert same(weights(whole.folder), weights(resumed.folder))
    timeless = {key: value for key, value in whole.summary.items() if key != "seconds"}
    assert timeless == {key: value for key, value in resumed.summary.items() if key != "seconds"}
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, 7))


def test_dropout_resumes_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any, **__: Any) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 64),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.5),
            vmcr2.models.MLP(64, 128),
        )

    monkeypatch.setattr("vmcr2.train._load.build", build)
    config = recipe("digits", objective="ce", **QUICK)
    whole = fit(config, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "stopped", listener=StopAfter(3))
    torch.manual_seed(999)
    torch.rand(7)
    resumed = fit(config, out=tmp_path / "stopped", resume=True)
    assert same(weights(whole.folder), weights(resumed.folder))


def test_a_process_killed_for_real_ends_bit_identical(tmp_path: Path) -> None:
    settings = ["--epochs", "40", "--set", "checkpoint_seconds=0", "--set", "eval_every=0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "vmcr2", "train", "digits"]
    subprocess.run(
        [*command, "--out", str(tmp_path / "whole"), *settings], check=True, env=environment, capture_output=True
    )
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "killed"), *settings], env=environment, stdout=subprocess.DEVNULL
    )
    checkpoint = tmp_path / "killed" / "checkpoint" / "last.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (checkpoint.parent / ".last.safetensors.1.tmp").write_bytes(b"half")  # as if it had been killed while writing
    assert not (tmp_path / "killed" / "summary.json").exists(), "it finished before it was killed"
    subprocess.run(
        [*command[:4], "--resume", "--out", str(tmp_path / "killed")], check=True, env=environment, capture_output=True
    )
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert not list((tmp_path / "killed").rglob("*.tmp"))


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    config = recipe("digits", **QUICK)
    first = fit(config, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    again = fit(config, out=tmp_path / "run", resume=True)
    assert again.summary == first.summary
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match="other settings"):
        fit(config.replace(lr=0.2), out=tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="already there"):
        fit(config, out=tmp_path / "run")
    assert torch.equal(first.classifier.bases, again.classifier.bases)


class OtherDigits(DigitsReader):
    """The digits with two labels exchanged."""

    def load(self, part: Any) -> Split:
        images, labels = super().load(part)
        return Split(images, torch.where(labels < 2, 1 - labels, labels))


@pytest.fixture
def others() -> Source:
    return dataclasses.replace(open_data("digits"), _reader=OtherDigits(DATASETS["digits"]))


def stopped(config: Config, folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=folder, listener=StopAfter(3))


def test_a_run_does_not_go_on_over_other_data(tmp_path: Path, others: Source) -> None:
    config = recipe("digits", **QUICK)
    stopped(config, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"run was begun with other training data than digits holds now: put back"):
        fit(config, out=tmp_path / "run", resume=True, source=others)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert fit(config, out=tmp_path / "run", resume=True).summary["epochs"] == 6  # over its own it does


def test_a_folder_that_does_not_say_its_data_goes_on(tmp_path: Path) -> None:
    """As older versions made them."""
    config = recipe("digits", **QUICK)
    for index, data in enumerate(({"name": "digits"}, None)):
        folder = tmp_path / str(index)
        stopped(config, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"data": data}))
        assert fit(config, out=folder, resume=True).summary["epochs"] == 6


def test_a_finished_run_over_other_data_is_returned_with_a_word(tmp_path: Path, others: Source) -> None:
    config = recipe("digits", **QUICK)
    first = fit(config, out=tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(config, out=tmp_path / "run", resume=True).summary == first.summary
    with pytest.warns(UserWarning, match="was begun with other training data than digits holds now"):
        assert fit(config, out=tmp_path / "run", resume=True, source=others).summary == first.summary


def test_evaluating_over_other_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: Source) -> None:
    fit(recipe("digits", **QUICK), out=tmp_path / "run")
    monkeypatch.setattr("vmcr2.train._remeasure.open_data", lambda name, path: others)
    with pytest.warns(UserWarning, match="figures made on these are not those of its summary"):
        assert evaluate_run(tmp_path / "run")["test_accuracy"] < 1


def test_a_run_killed_while_its_folder_was_made_is_begun_by_resuming(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    config = recipe("digits", **QUICK)
    with pytest.raises(UserError, match="--resume to go on"):
        fit(config, out=tmp_path / "run")
    assert fit(config, out=tmp_path / "run", resume=True).summary["epochs"] == 6


def test_two_runs_without_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = recipe("digits", epochs=1, eval_every=0, hidden=(32,))
    folders = {fit(config, resume=again).folder for again in (False, False, True)}
    assert len(folders) == len(list(Path("runs").iterdir())) == 3
    with pytest.raises(UserError, match="mlp"):
        fit(config.replace(model="mpl"))
    assert len(list(Path("runs").iterdir())) == 3  # what cannot run has no folder


@pytest.mark.parametrize("ends", ["well", "broken"])
def test_the_caller_s_random_numbers_go_on_as_if_there_had_been_no_run(ends: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    config = recipe("digits", objective="ce", epochs=1, eval_every=0, hidden=(32,))
    if ends == "well":
        fit(config, out=tmp_path / "run")
    else:
        with pytest.raises(TrainingError):
            fit(config.replace(lr=1e30), out=tmp_path / "run")
    assert torch.equal(torch.rand(4), expected)


def test_the_test_set_is_not_read_with_a_hold_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Source) -> Split:
        raise AssertionError("the test set was read")

    monkeypatch.setattr(Source, "test", forbidden)
    run = fit(recipe("digits", holdout=200, **QUICK), out=tmp_path / "run")
    assert "holdout_accuracy" in run.summary
    assert not [key for key in run.summary if key.startswith("test")]
    measured = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("holdout_accuracy" in record for record in measured)
    with pytest.raises(AssertionError, match="was read"):
        fit(recipe("digits", **QUICK), out=tmp_path / "other")


def test_a_set_smaller_than_the_batch_is_one_batch(tmp_path: Path) -> None:
    run = fit(recipe("digits", batch_size=100_000, epochs=2, eval_every=0), out=tmp_path / "run")
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    assert run.summary["train_images"] == 1437


def test_samples_left_over_are_not_used_in_a_pass(tmp_path: Path) -> None:
    fit(recipe("digits", batch_size=1000, epochs=3, eval_every=0), out=tmp_path / "run")
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]


def test_a_broken_loss_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="broke in epoch"):
        fit(recipe("digits", objective="ce", lr=1e30, epochs=20, schedule="constant"), out=tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_the_run_folder_is_complete(tmp_path: Path) -> None:
    run = fit(recipe("digits", **QUICK), out=tmp_path / "run")
    names = {path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*") if path.is_file()}
    assert names == {
        "config.json",
        "manifest.json",
        "metrics.jsonl",
        "summary.json",
        "model.safetensors",
        "objective.safetensors",
        "subspaces.safetensors",
        "evaluation.safetensors",
        "checkpoint/last.safetensors",
    }
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert len(manifest["data"]["train_checksum"]) == 64
    assert manifest["torch"] == torch.__version__
    assert Config.from_json((run.folder / "config.json").read_text()) == run.config
    assert set(load_file(run.folder / "objective.safetensors")) == {"dictionary", "codes", "latched"}


@pytest.mark.parametrize("holdout", [0, 200])
def test_a_run_that_is_not_for_a_report_lacks_its_file_alone(holdout: int, tmp_path: Path) -> None:
    config = recipe("digits", holdout=holdout, **QUICK)
    shown, plain = (fit(config, out=tmp_path / str(wanted), for_report=wanted) for wanted in (True, False))
    names = [{path.relative_to(run.folder) for path in run.folder.rglob("*")} for run in (shown, plain)]
    assert names[0] - names[1] == {Path("evaluation.safetensors")}
    assert names[1] < names[0]
    assert same(weights(shown.folder), weights(plain.folder))
    timeless = [{key: value for key, value in run.summary.items() if key != "seconds"} for run in (shown, plain)]
    assert timeless[0] == timeless[1]
