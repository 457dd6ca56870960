"""Disks that are full, read-only, slow or gone in the middle of a run: one sentence, and what was saved is whole."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from data_formats import write_mnist
from digits_trainer import quick
from picture_folders import write_split
from run_files import same, weights

from vmcr2._shared import _files
from vmcr2.data import Split, open_data
from vmcr2.runs import Config, Run, RunFolder, UserError, find_checkpoint, fit, read_position

MOUNT = shutil.which("mount")


def config() -> Config:
    return quick("vmcr2", epochs=5, eval_every=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(config(), out=tmp_path_factory.mktemp("whole") / "run")


class At:
    """Does something after an epoch."""

    def __init__(self, epoch: int, do: Callable[[], Any]) -> None:
        self.at, self.do = epoch, do

    def epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] == self.at:
            self.do()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two mebibytes in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    if MOUNT is None or os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    made = subprocess.run([MOUNT, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False)
    if made.returncode:
        pytest.skip("this machine does not allow to mount a disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-R", "-l", str(place)], check=True)


def make_read_only(folder: Path) -> None:
    """By another mount over it: one with open files cannot be changed. ``umount`` takes it away."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def fill(disk: Path) -> None:
    """To the last byte."""
    with suppress_full(), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def suppress_full() -> Any:
    return pytest.raises(OSError, match="No space left on device")


def check_saved(folder: RunFolder, error: pytest.ExceptionInfo[UserError], why: str, epoch: int) -> None:
    """One sentence, and a whole checkpoint of the epoch before."""
    said = str(error.value)
    assert said.startswith(f"cannot write to {folder.path}: {why}. What was saved before is whole")
    assert f"`vmcr2 train --resume --out {folder.path}` continues from the last checkpoint" in said
    assert "\n" not in said
    found = find_checkpoint(folder)
    assert found is not None
    assert read_position(found).epoch == epoch


def test_a_disk_that_fills_up_in_mid_run(disk: Path, whole: Run) -> None:
    folder = RunFolder(disk / "run")
    with pytest.raises(UserError) as error:
        fit(config(), out=folder.path, callbacks=[At(3, lambda: fill(disk))])
    check_saved(folder, error, "No space left on device", 2)
    assert not list(disk.rglob("*.tmp"))
    (disk / "filler").unlink()
    assert same(weights(fit(config(), out=folder.path, resume=True).folder), weights(whole.folder))


def test_a_disk_that_becomes_read_only_in_mid_run(disk: Path, whole: Run) -> None:
    folder = RunFolder(disk / "run")
    with pytest.raises(UserError) as error:
        fit(config(), out=folder.path, callbacks=[At(3, lambda: make_read_only(folder.path))])
    check_saved(folder, error, "Read-only file system", 2)
    said = in_process("train", "--resume", "--out", str(folder.path))
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "Read-only file system" in said.err
    subprocess.run(["umount", str(folder.path)], check=True)
    assert same(weights(fit(config(), out=folder.path, resume=True).folder), weights(whole.folder))


def test_a_finished_run_on_a_read_only_disk_is_used(disk: Path) -> None:
    run = fit(quick("ce", epochs=1), out=disk / "run")
    assert in_process("report", str(run.folder)).code == 0
    make_read_only(run.folder)
    for line in (["evaluate", str(run.folder)], ["train", "--resume", "--out", str(run.folder)]):
        said = in_process(*line)
        assert (said.code, said.err) == (0, ""), line


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_any_error_of_a_disk_is_one_sentence(
    number: int, tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody can mount one: when the third checkpoint is brought to the disk."""
    calls = 0

    def failing(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_files, "_to_disk", failing)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UserError) as error:
        fit(config(), out=folder.path)
    check_saved(folder, error, os.strerror(number), 2)
    assert not list(folder.path.rglob("*.tmp"))
    assert same(weights(fit(config(), out=folder.path, resume=True).folder), weights(whole.folder))


def test_a_folder_that_vanishes_in_mid_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No such file or directory\. The run's files are gone: start it again$"):
        fit(config(), out=tmp_path / "run", callbacks=[At(2, lambda: shutil.rmtree(tmp_path / "run"))])


def test_data_that_vanish_in_mid_run(tmp_path: Path) -> None:
    """What is read once is in memory; a table or a folder may go."""
    train = open_data("digits").train()
    write_split(tmp_path / "photos", Split(train.images[:300], train.labels[:300]), tuple("0123456789"))
    line = ["train", str(tmp_path / "photos"), "--epochs", "2", "--model", "mlp", "--device", "cpu", "--set", "dim=32"]
    assert in_process(*line, "--out", str(tmp_path / "run")).code == 0
    shutil.rmtree(tmp_path / "photos")
    (tmp_path / "run" / "summary.json").unlink()
    said = in_process("train", "--resume", "--out", str(tmp_path / "run"))
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert str(tmp_path / "photos") in said.err


def test_a_slow_disk_changes_nothing(tmp_path: Path, whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def slow(*given: Any) -> None:
        time.sleep(0.05)
        replace(*given)

    monkeypatch.setattr(os, "replace", slow)
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(0.05))
    assert same(weights(fit(config(), out=tmp_path / "run").folder), weights(whole.folder))


def test_every_command_on_a_full_disk_is_one_sentence(disk: Path, tmp_path: Path) -> None:
    run = fit(quick("ce", epochs=1), out=tmp_path / "run").folder
    train = open_data("digits").train()
    write_split(tmp_path / "new", Split(train.images[:30], train.labels[:30]), tuple("0123456789"))
    write_mnist(tmp_path / "raw", 600, 100)
    fill(disk)
    new, small = str(tmp_path / "new"), ["--epochs", "1", "--set", "hidden=32", "--set", "dim=32"]
    for line in (
        ["train", "digits", *small, "--out", str(disk / "run")],
        ["sweep", "digits", "--grid", "lr=0.1", *small, "--out", str(disk / "sweep")],
        ["predict", str(run), new, "-o", str(disk / "out.csv")],
        ["predict", str(run), new, "-o", str(disk / "out.jsonl")],
        ["embed", str(run), new, "-o", str(disk / "out.npz")],
        ["neighbors", str(run), new, "-o", str(disk / "out.png")],
        ["report", str(run), "-o", str(disk / "page.html")],
        ["report", str(run), "-o", str(tmp_path / "page.html"), "--figures", str(disk / "figures")],
        ["data", "pack", "mnist", "--from", str(tmp_path / "raw"), "--to", str(disk / "m.safetensors")],
    ):
        said = in_process(*line)
        # a sweep also says that the same command tries the run again
        assert (said.code, said.err.count("\n")) == ((1, 2) if line[0] == "sweep" else (2, 1)), (line, said)
        assert "No space left on device" in said.err
        left = {path.name for path in disk.rglob("*") if path.is_file() and path.stat().st_size}
        assert left == {"filler"}, (line, left)
