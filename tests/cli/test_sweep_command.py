"""`vmcr2 sweep` as a person meets it: lines, the table, JSON, mistakes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from sweep_lines import lines, said_by
from typer.testing import CliRunner

from vmcr2.cli import _sweep, _sweep_display, app
from vmcr2.data import Source
from vmcr2.runs import TrainingError, recipe

pytestmark = pytest.mark.usefixtures("bare_folder")

QUICK = ("--epochs", "1", "--set", "hidden=32", "--set", "eval_every=0")


def test_a_line_for_every_run_and_a_table() -> None:
    said = said_by("digits", *QUICK, "--grid", "lr=0.01,0.3", "--seeds", "0,1", "--out", "s")
    assert (said.code, said.err) == (0, "")
    shown = said.out.splitlines()
    assert shown[0] == "4 points"
    records = lines()
    for index, record in enumerate(records):
        figures = f"hold-out {record['holdout_accuracy']:.4f}, ΔR {record['train_delta_r']:.1f} (train)"
        label = f"lr={record['point']['lr']} seed={record['seed']}"
        assert re.fullmatch(rf"\[{index + 1}/4\] {label}: {re.escape(figures)}, \d+ s", shown[index + 1])
    means = {lr: sum(r["holdout_accuracy"] for r in records if r["point"]["lr"] == lr) / 2 for lr in (0.01, 0.3)}
    rows = [line.split(" | ") for line in shown if line.startswith("| 0")]
    assert [row[0] for row in rows] == [f"| {lr}" for lr in sorted(means, key=lambda lr: -means[lr])]
    for row in rows:
        assert row[1] == "0,1"
        assert row[2].startswith(f"{means[float(row[0][2:])]:.4f} ± ")
    assert shown[-1] == "4 of 4 runs have a line in s/results.jsonl"


def test_going_on_says_what_was_done_before() -> None:
    assert said_by("digits", *QUICK, "--grid", "lr=0.1", "--out", "s").code == 0
    again = said_by("digits", *QUICK, "--grid", "lr=0.1,0.3", "--out", "s")
    assert again.out.startswith("2 points, 1 of them done before\n[2/2] lr=0.3 seed=0: ")
    assert [record["point"]["lr"] for record in lines()] == [0.1, 0.3]


def test_as_json_one_object_and_nothing_else() -> None:
    said = said_by("digits", *QUICK, "--objective", "ce", "--grid", "lr=0.1,1e30", "--json", "--out", "s")
    assert (said.code, said.err) == (0, "")
    shown = json.loads(said.out)
    assert shown["runs"] == lines()
    assert [row["settings"] for row in shown["table"]] == [{"lr": 0.1}, {"lr": 1e30}]
    assert shown["table"][0]["means"]["holdout_accuracy"] == shown["runs"][0]["holdout_accuracy"]
    assert "training broke" in shown["table"][1]["failed"][0]
    assert (shown["lost"], shown["folder"]) == ([], "s")


def test_a_broken_run_is_shown_and_is_no_error() -> None:
    said = said_by("digits", *QUICK, "--objective", "ce", "--grid", "lr=1e30,0.1", "--out", "s")
    assert said.code == 0
    assert "[1/2] lr=1e+30 seed=0: failed: training broke in epoch 1" in said.out
    last_row = [line for line in said.out.splitlines() if line.startswith("|")][-1]
    assert "| failed 1 of 1: training broke" in last_row


def test_a_run_without_a_result_is_an_error() -> None:
    said = said_by("digits", *QUICK, "--grid", "batch_size=1,479", "--out", "s")
    assert said.code == 1
    assert "[1/2] batch_size=479 seed=0" in said.out
    first, last = said.err.splitlines()
    assert first.startswith("vmcr2: batch_size=1 seed=0: no result: BatchNorm needs at least two samples")
    assert last == "vmcr2: 1 of 2 runs ended without a result; the same command tries them again"
    shown = json.loads(said_by("digits", *QUICK, "--grid", "batch_size=1,479", "--out", "s", "--json").out)
    assert [(entry["point"], entry["seed"]) for entry in shown["lost"]] == [({"batch_size": 1}, 0)]


def test_the_options_arrive_in_every_run() -> None:
    said = said_by(
        "digits", *QUICK, "--holdout", "100", "--seed", "4", "--device", "cpu", "--set", "lr=0.2", "--out", "s"
    )
    assert said.code == 0
    (record,) = lines()
    config = json.loads(Path("s", record["folder"], "config.json").read_text())
    expected = {"holdout": 100, "seed": 4, "device": "cpu", "lr": 0.2, "epochs": 1, "hidden": [32]}
    assert {name: config[name] for name in expected} == expected
    assert (record["holdout_images"], record["train_images"]) == (100, 1337)
    assert not Path("s", record["folder"], "model.safetensors").exists()
    assert said_by("digits", *QUICK, "--keep-weights", "--out", "kept").code == 0
    assert list(Path("kept").rglob("model.safetensors"))


def test_the_test_set_stays_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def poison(_: Source) -> None:
        raise AssertionError("the test split was read")

    monkeypatch.setattr(Source, "test", poison)
    said = said_by("digits", *QUICK, "--grid", "lr=0.1,0.3", "--out", "s")
    assert (said.code, said.err) == (0, "")
    assert len(lines()) == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("digits", "--holdout", "0", "--out", "s"), ("never reads the test set",)),
        (("digits", "--set", "holdout=0", "--out", "s"), ("never reads the test set",)),
        (("digits", "--grid", "holdout=0", "--out", "s"), ("never on the test set",)),
        (("digits", "--grid", "weigth=1,2", "--out", "s"), ("there is no setting 'weigth'", "did you mean weight")),
        (("digits", "--grid", "lr=fast", "--out", "s"), ("lr takes a number, got 'fast'",)),
        (("digits", "--grid", "lr", "--out", "s"), ("--grid takes key=v1,v2",)),
        (
            ("digits", "--grid", "lr=1,2", "--set", "lr=3", "--out", "s"),
            ("lr is set twice, by --grid and by --set",),
        ),
        (("digits", "--epochs", "1", "--set", "epochs=3", "--out", "s"), ("epochs is set twice",)),
        (("digits", "--epochs", "1", "--grid", "epochs=2,3", "--out", "s"), ("by its own option and by --grid",)),
        (("digits", "--grid", "seed=0", "--seeds", "1", "--out", "s"), ("set the same: leave one out",)),
        (
            ("digits", "--objective", "ce", "--grid", "weight=5,20", "--out", "s"),
            ("weight acts with vmcr2 or ce+vmcr2 only, and the objective is ce",),
        ),
        (("digits", "--data", "x", "--out", "s"), ("digits is part of scikit-learn and needs no path",)),
        (("digits", "--seeds", "a", "--out", "s"), ("seed takes a whole number, got 'a'",)),
        (("digitz", "--out", "s"), ("there is no recipe 'digitz'", "did you mean digits")),
        (("digits", "--objective", "mse", "--out", "s"), ("mse", "vmcr2 or mcr2 or ce")),
        (("digits", "--parallel", "0", "--out", "s"), ("--parallel must be at least 1",)),
        (("mnist", "--out", "s"), ("MNIST was not found",)),
        (("digits", "--device", "cuda", "--out", "s"), ("torch sees no CUDA device",)),
    ],
)
def test_a_users_mistake_in_one_sentence(args: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    said = said_by(*args)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("vmcr2: ")
    assert said.err.count("\n") == 1
    for word in words:
        assert word in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_says_how_to_go_on(how: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        os.kill(os.getpid(), how)
        time.sleep(10)

    monkeypatch.setattr(_sweep, "run_sweep", stop)
    assert said_by("digits", "--out", "s") == (130, "", "vmcr2: stopped; give the same command again to continue s\n")


def test_on_a_terminal_the_best_so_far_is_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(_sweep_display, "Console", lambda: console)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    points = _sweep._points(recipe("digits").with_settings, _sweep.read_axes(["lr=0.1,0.3,0.5"]), None, [])
    records = [
        {"holdout_accuracy": 0.5, "train_delta_r": 3.0, "seconds": 1.0, "wall_seconds": 2.0},
        {"holdout_accuracy": 0.4, "train_delta_r": 4.0, "seconds": 1.0, "wall_seconds": None},
        {"failed": str(TrainingError("it broke")), "wall_seconds": 1.0},
    ]
    with _sweep_display.sweep_display(quiet=False) as display:
        display.started(4, 1, "2 runs at a time")
        for done, (record, point) in enumerate(zip(records, points, strict=True), start=2):
            display.finished(done, 4, record, point)
        display.lost(points[0], "worker ended (signal 9)")
    shown = seen.getvalue()
    assert "[3/4] lr=0.3 seed=0: hold-out 0.4000, ΔR 4.0 (train), 1 s" in shown
    assert "lr=0.5 seed=0: failed: it broke" in shown
    assert "lr=0.1 seed=0: no result: worker ended (signal 9)" in shown
    last = re.split(r"\x1b\[2K|\x1b\[1A|\r", shown.rstrip())[-1]
    assert "4/4" in last
    assert "best 0.5000 (lr=0.1 seed=0)" in last


@pytest.mark.parametrize("example", ["vmcr2 sweep digits --grid lr=0.1,0.3", "--parallel 3", "'hidden=256,256;512'"])
def test_help_teaches_by_example(example: str) -> None:
    result = CliRunner().invoke(app, ["sweep", "--help"], prog_name="PROGRAM", env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert example in result.stdout
