"""One process works in a run folder at a time, and a checkpoint is read through one handle."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_trainer import CPU

import vmcr2
from vmcr2.data import open_data
from vmcr2.runs import RunFolder, Trainer, UserError, _folder, _tensor_files, fit, read_position, recipe
from vmcr2.runs._checkpoint import Position, load_checkpoint, save_checkpoint
from vmcr2.runs._tensor_files import read_tensors_with_metadata, write_tensors

ROOT = Path(vmcr2.__file__).parent.parent
HOLD = """
import sys, time
from pathlib import Path
from vmcr2.runs import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(600)
"""
SMALL: dict[str, Any] = {"device": "cpu", "epochs": 2, "hidden": (8,), "dim": 10, "eval_every": 0}


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the folder; killed at the end, if it still is."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = recipe("digits", objective="ce", **SMALL)
    folder = tmp_path / "run"
    with held_elsewhere(folder) as other:
        monkeypatch.setattr(_folder, "_PATIENCE", 0.1)
        for resume in (True, False):
            with pytest.raises(UserError, match=f"^another process is at work in {folder}: wait until it ends, or"):
                fit(config, out=folder, resume=resume)
        assert [path.name for path in folder.iterdir()] == [".lock"], "who waits writes nothing"
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert fit(config, out=folder, resume=True).summary["epochs"] == 2
    with held_elsewhere(folder):  # a finished run is only read, and reading needs no lock
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert fit(config, out=folder, resume=True).summary["epochs"] == 2
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        assert vmcr2.load_run(folder, device="cpu").summary["epochs"] == 2


def test_who_comes_second_waits_a_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a killed sweep end soon after it: the next command need not fail for them."""
    monkeypatch.setattr(_folder, "_PATIENCE", 60.0)
    with held_elsewhere(tmp_path) as other:
        killed: list[float] = []
        sleep = time.sleep

        def kill_meanwhile(seconds: float) -> None:
            if not killed:
                other.send_signal(signal.SIGKILL)
                other.wait()
                killed.append(time.monotonic())
            sleep(seconds)

        monkeypatch.setattr(time, "sleep", kill_meanwhile)
        with RunFolder(tmp_path).held():
            assert killed


def test_a_process_takes_the_lock_again_when_it_has_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        with RunFolder(tmp_path / "run").held():
            pass

    def fail() -> None:
        with RunFolder(tmp_path / "run").held():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with RunFolder(tmp_path / "run").held():
        assert (tmp_path / "run" / ".lock").exists()


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("my work")
    with (
        pytest.raises(UserError, match=r"^cannot write to .*file/run: Not a directory$"),
        RunFolder(tmp_path / "file" / "run").held(),
    ):
        pass


# ---- one handle


class Replacing:
    """``safe_open`` that has another process replace the file as soon as it is open, and counts the opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, replace: Any) -> None:
        self.opens = 0
        self._open, self._replace = _tensor_files.safe_open, replace
        monkeypatch.setattr(_tensor_files, "safe_open", self)

    def __call__(self, path: Path, **options: Any) -> Any:
        self.opens += 1
        handle = self._open(path, **options)
        self._replace()
        return handle


def test_tensors_and_metadata_are_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.safetensors"
    tensors = {f"t{i}": torch.full((100, 10), 1.0) for i in range(5)}
    write_tensors(path, tensors, {"position": "1"})
    watch = Replacing(
        monkeypatch,
        lambda: write_tensors(path, {name: value + 1 for name, value in tensors.items()}, {"position": "2"}),
    )
    found, metadata = read_tensors_with_metadata(path)
    assert metadata == {"position": "1"}
    assert all(torch.equal(value, tensors[name]) for name, value in found.items())
    assert watch.opens == 1
    monkeypatch.undo()
    assert read_tensors_with_metadata(path)[1] == {"position": "2"}  # it was replaced


def test_a_checkpoint_replaced_while_it_is_read_is_the_one_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = RunFolder(tmp_path)
    path.checkpoint.parent.mkdir()
    config = recipe("digits", objective="ce", **SMALL)
    one, two, reader = (Trainer(config.replace(seed=seed), open_data("digits"), CPU) for seed in (1, 2, 3))
    for made in (one, two):
        made.step.begin(0)
        made.step()  # an optimiser has a state after its first step
    save_checkpoint(path, one.step, Position(1, 3, 0.5))
    watch = Replacing(monkeypatch, lambda: save_checkpoint(path, two.step, Position(2, 6, 1.0)))
    assert load_checkpoint(path, reader.step, warnings.warn) == Position(1, 3, 0.5)
    assert watch.opens == 1
    for mine, theirs in zip(reader.step.parameters, one.step.parameters, strict=True):
        assert torch.equal(mine, theirs)
    assert read_position(path.checkpoint) == Position(2, 6, 1.0)
    assert watch.opens == 2


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"), RunFolder(tmp_path / "run").held():
        assert (tmp_path / "run").is_dir()
