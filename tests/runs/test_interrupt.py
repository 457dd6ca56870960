"""Ctrl-C, SIGTERM and SIGHUP: a run stops after a step, and goes on in the middle of the epoch, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from digits_trainer import quick
from run_files import metrics, same, timeless, weights, without_clocks
from seeds import SEED
from torch import nn

import vmcr2
from vmcr2.runs import Callback, Config, RunFolder, TrainingError, fit, load_run, read_position
from vmcr2.runs._tensor_files import read_tensors_with_metadata, write_tensors
from vmcr2.training import Step

ROOT = Path(vmcr2.__file__).parent.parent
CROPS = {"augmentation": "crop", "crop_padding": 1}


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something after so many steps of this process, once."""

    def arrange(number: int, act: Callable[[], None]) -> None:
        made = 0
        original = Step.__call__

        def call(step: Step) -> None:
            nonlocal made
            original(step)
            made += 1
            if made == number:
                act()

        monkeypatch.setattr(Step, "__call__", call)

    return arrange


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def with_dropout(*_: Any, **__: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Dropout(0.5), vmcr2.models.MLP(64, 32, batch_norm=True))


# ---- in the middle of an epoch


@pytest.mark.parametrize(
    ("objective", "changes", "steps"),
    [
        ("vmcr2", {"latch_every": 2}, 4),
        ("vmcr2", {"latch_every": 4, "latch_unit": "steps", **CROPS}, 4),  # latching is due right there
        ("vmcr2", {"block": True, "latch_every": 2}, 5),
        ("mcr2", {"optimizer": "adamw", "lr": 1e-3}, 5),
        ("mcr2", {"batch_size": 400, "memory": 900}, 8),
        ("ce", {"warmup_epochs": 2.0, "average": 0.9, **CROPS}, 1),  # also in the first epoch
        ("ce+vmcr2", {"latch_every": 2, "schedule": "linear"}, 39),  # also in the last
        ("vmcr2", {"batch_size": 400, "samples_per_class": 50, "latch_every": 2}, 4),
    ],
)
def test_a_run_goes_on_in_the_middle_of_an_epoch_bit_for_bit(
    objective: str, changes: dict[str, Any], steps: int, tmp_path: Path, at_step: Callable[..., None]
) -> None:
    config = quick(objective, checkpoint_seconds=1e6, **changes)  # no other checkpoint on the way
    whole = fit(config, out=tmp_path / "whole")
    before = handlers()
    at_step(steps, send(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "run")
    assert handlers() == before
    position = read_position(RunFolder(tmp_path / "run").checkpoint)
    done = steps // metrics(whole.folder)[0]["step"]
    assert (position.epoch, position.step) == (done, steps)
    assert 0 < position.spent <= position.seconds
    assert [line["epoch"] for line in metrics(tmp_path / "run")] == list(range(1, done + 1))
    resumed = fit(config, out=tmp_path / "run", resume=True)
    assert same(weights(whole.folder), weights(resumed.folder))
    assert timeless(whole) == timeless(resumed)
    assert without_clocks(whole.folder) == without_clocks(resumed.folder)


def test_dropout_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_step: Callable[..., None]
) -> None:
    monkeypatch.setattr("vmcr2.models._settings.build", with_dropout)
    whole = fit(quick("ce"), out=tmp_path / "whole")
    at_step(8, send(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fit(quick("ce"), out=tmp_path / "run")
    assert same(weights(fit(quick("ce"), out=tmp_path / "run", resume=True).folder), weights(whole.folder))


def test_seconds_and_speed_stay_right(tmp_path: Path, at_step: Callable[..., None]) -> None:
    """The line of the epoch counts the seconds of both parts, and those before the stop are not lost."""
    at_step(5, send(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fit(quick("ce"), out=tmp_path / "run")
    position = read_position(RunFolder(tmp_path / "run").checkpoint)
    run = fit(quick("ce"), out=tmp_path / "run", resume=True)
    first, second = metrics(run.folder)[:2]
    assert second["step"] == 6
    assert first["seconds"] < position.seconds < second["seconds"]
    spent = 3 * 431 / second["images_per_second"]
    assert position.spent < spent <= second["seconds"] - first["seconds"] + 1e-6


def test_a_step_that_broke_is_not_saved(tmp_path: Path, at_step: Callable[..., None]) -> None:
    at_step(2, send(signal.SIGINT))
    with pytest.raises(TrainingError):
        fit(quick("ce", lr=1e30), out=tmp_path / "run")
    assert not RunFolder(tmp_path / "run").checkpoint.exists()


def test_a_checkpoint_of_0_4_goes_on(tmp_path: Path) -> None:
    """It says nothing about an epoch that is not done, or about an early end."""
    whole = fit(quick("ce"), out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(quick("ce"), out=tmp_path / "run", callbacks=[At("epoch 2", signal.SIGINT)])
    path = RunFolder(tmp_path / "run").checkpoint
    tensors, metadata = read_tensors_with_metadata(path)
    position = json.loads(metadata["position"])
    old = {name: position[name] for name in ("epoch", "step", "seconds")}
    write_tensors(path, tensors, {"position": json.dumps(old)})
    assert same(weights(fit(quick("ce"), out=tmp_path / "run", resume=True).folder), weights(whole.folder))


# ---- at other moments


class At(Callback):
    """Sends a signal, or several, when something happens."""

    def __init__(self, what: str, *numbers: int) -> None:
        self.what, self.numbers = what, numbers
        self.said: list[Any] = []

    def _act(self, now: str) -> None:
        if now == self.what:
            for number in self.numbers:
                os.kill(os.getpid(), number)

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        self._act("started")

    def epoch(self, record: dict[str, Any]) -> None:
        self.said.append(record["epoch"])
        self._act(f"epoch {record['epoch']}")

    def failed(self, error: BaseException) -> None:
        self.said.append(error)


@pytest.mark.parametrize(
    ("number", "expected", "code"),
    [
        (signal.SIGINT, KeyboardInterrupt, None),
        (signal.SIGTERM, SystemExit, 143),
        (signal.SIGHUP, SystemExit, 129),
    ],
)
def test_between_two_epochs(number: int, expected: type[BaseException], code: int | None, tmp_path: Path) -> None:
    config = quick("vmcr2", latch_every=2, checkpoint_seconds=1e6)
    whole = fit(config, out=tmp_path / "whole")
    stop = At("epoch 2", number)
    with pytest.raises(expected) as caught:
        fit(config, out=tmp_path / "run", callbacks=[stop])
    assert getattr(caught.value, "code", None) == code
    assert stop.said == [1, 2, caught.value]
    assert read_position(RunFolder(tmp_path / "run").checkpoint)[:2] == (2, 6)
    assert same(weights(fit(config, out=tmp_path / "run", resume=True).folder), weights(whole.folder))


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(quick("ce", checkpoint_seconds=1e6), out=tmp_path / "run", callbacks=[At("epoch 2", *[signal.SIGINT] * 2)])
    assert not RunFolder(tmp_path / "run").checkpoint.exists()


def test_in_the_last_epoch_only_the_measuring_is_left(tmp_path: Path) -> None:
    stop = At("epoch 6", signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(quick("ce"), out=tmp_path / "run", callbacks=[stop])
    assert not RunFolder(tmp_path / "run").finished
    assert read_position(RunFolder(tmp_path / "run").checkpoint).epoch == 6
    assert fit(quick("ce"), out=tmp_path / "run", resume=True).summary["epochs"] == 6


def test_while_a_run_is_measured_the_first_signal_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmcr2.runs import Trainer

    original = Trainer.measure
    with monkeypatch.context() as once:
        once.setattr(Trainer, "measure", lambda trainer: (send(signal.SIGTERM)(), original(trainer))[1])
        with pytest.raises(SystemExit):
            fit(quick("ce"), out=tmp_path / "run")
    assert not RunFolder(tmp_path / "run").finished
    assert fit(quick("ce"), out=tmp_path / "run", resume=True).summary["epochs"] == 6


# ---- whose signal it is


def test_a_program_s_own_answer_to_a_signal_is_left_alone(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        run = fit(quick("ce"), out=tmp_path / "run", callbacks=[At("epoch 2", signal.SIGTERM, signal.SIGHUP)])
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hangup)
    assert heard == [signal.SIGTERM]
    assert run.summary["epochs"] == 6


def test_another_thread_may_train(tmp_path: Path) -> None:
    """Only the main thread can answer signals."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(fit(quick("ce", epochs=1), out=tmp_path / "run")))
    thread.start()
    thread.join()
    assert made[0].summary["epochs"] == 1


# ---- the command, as a person stops it

COMMAND = """
import os, signal, sys
from vmcr2.cli import main
from vmcr2.runs._tensor_files import read_tensors_with_metadata, write_tensors
from vmcr2.training import Step

steps, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
original, made = Step.__call__, 0

def call(step):
    global made
    original(step)
    made += 1
    if made == steps:
        os.kill(os.getpid(), number)

Step.__call__ = call
commands = [line.split("\\t") for line in "\\t".join(sys.argv[1:]).split("\\tand\\t")]
for args in commands:
    sys.argv[1:] = args
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def command(steps: int, number: int, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`vmcr2 ARGS` in a process that gets a real signal after some steps; 0 steps for none. "and" starts another."""
    line = [sys.executable, "-c", COMMAND, str(steps), str(number), *args]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_process_that_gets_a_signal_goes_on_bit_identical(tmp_path: Path) -> None:
    small = ["epochs=5", "hidden=32", "dim=32", "atoms_per_class=3", "latch_every=4", "latch_unit=steps"]
    settings = [part for text in small for part in ("--set", text)] + ["--seed", str(SEED), "--device", "cpu"]
    stops = [(4, signal.SIGTERM, 143), (7, signal.SIGINT, 130)]
    for index, (steps, number, code) in enumerate(stops):
        args = ("--resume", "--out", "run") if index else (*settings, "--out", "run")
        said = command(steps, number, "train", *args, cwd=tmp_path)
        assert said.returncode == code, said.stderr
        done = sum(stop[0] for stop in stops[: index + 1])
        again = "vmcr2: stopped; `vmcr2 train --resume --out run` continues in epoch "
        assert said.stderr == f"{again}{done // 3 + 1}, after step {done} of the run\n"
    whole = ("train", *settings, "--out", "whole")
    said = command(0, 0, "train", "--resume", "--out", "run", "and", *whole, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert "goes on in epoch 4, after step 2 of 3\n" in said.stdout
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert without_clocks(tmp_path / "run") == without_clocks(tmp_path / "whole")
    assert timeless(load_run(tmp_path / "run")) == timeless(load_run(tmp_path / "whole"))
