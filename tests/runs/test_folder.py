"""The run folder: whole files or none, nothing overwritten, and plain words for what cannot be read."""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2 import __version__
from vmcr2._shared import atomic
from vmcr2.data import open_data
from vmcr2.runs import (
    FORMAT,
    RECIPES,
    Config,
    RunFolder,
    UserError,
    _folder,
    _tensor_files,
    deciding_settings,
    fit,
    read_tensors,
    recipe,
    write_text,
)
from vmcr2.runs._folder import default_folder
from vmcr2.runs._manifest import manifest
from vmcr2.runs._tensor_files import write_tensors

MANIFEST: dict[str, Any] = {"format": FORMAT}


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def started(path: Path, config: Config | None = None, **more: Any) -> RunFolder:
    """A run as it is before its first epoch."""
    folder = RunFolder(path)
    with folder.held():
        folder.create(config or Config(), MANIFEST | more)
    return folder


# ---- atomic writes


def test_atomic_puts_the_whole_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic(path) as temporary:
        assert temporary.parent == tmp_path  # a replace is atomic within one file system only
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert contents(tmp_path) == {"a.txt": b"whole"}


@pytest.mark.parametrize("error", [RuntimeError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [None, "old"])
def test_atomic_leaves_what_was_there_when_the_block_fails(
    tmp_path: Path, error: type[BaseException], old: str | None
) -> None:
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_text(old)

    def write() -> None:
        with atomic(path) as temporary:
            temporary.write_text("hal")
            raise error

    with pytest.raises(error):
        write()
    assert contents(tmp_path) == ({} if old is None else {"a.txt": b"old"})


def test_a_failed_replace_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_text(tmp_path / "a.txt", "new")
    assert contents(tmp_path) == {}


def test_a_reader_sees_the_old_or_the_new_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    seen = []
    true_replace = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append((path.read_text(), Path(source).read_text()))
        true_replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write_text(path, "new")
    assert seen == [("old", "new")]
    assert path.read_text() == "new"


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensors = {
        "strided": torch.randn(6, 4).T,
        "half": torch.randn(3).half(),
        "flag": torch.tensor(True),
        "none": torch.zeros(0, 2),
        "graph": torch.ones(2, requires_grad=True) * 2,
    }
    write_tensors(path, tensors, {"position": "3"})
    again = read_tensors(path)
    assert set(again) == set(tensors)
    assert all(
        torch.equal(again[name], value.detach()) and again[name].dtype == value.dtype for name, value in tensors.items()
    )
    assert list(contents(tmp_path)) == ["t.safetensors"]


def test_failing_to_write_tensors_keeps_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": torch.ones(2)})
    before = contents(tmp_path)

    def fill_the_disk(target: Path, _: object, __: object) -> None:
        Path(target).write_bytes(b"half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(_tensor_files, "write_tensor_file", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        write_tensors(path, {"a": torch.zeros(2)})
    assert contents(tmp_path) == before


def test_tensor_files_are_as_readable_as_the_others(tmp_path: Path) -> None:
    """A run folder is shared: what the umask allows for config.json it allows for the weights."""
    write_text(tmp_path / "config.json", "{}")
    write_tensors(tmp_path / "model.safetensors", {"a": torch.ones(2)})
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "rubbish", "folder"])
def test_damaged_tensors_are_a_users_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.ones(200)})
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "cut": whole[:-40], "rubbish": b"\xff" * 300}[damage])
    with pytest.raises(UserError, match=r"model\.safetensors is missing or damaged"):
        read_tensors(path)


# ---- create


def test_create_writes_what_will_run(tmp_path: Path) -> None:
    config = recipe("digits", epochs=3)
    folder = started(tmp_path / "deep" / "run", config, seed=7)
    assert set(contents(folder.path)) == {"config.json", "manifest.json", "metrics.jsonl"}
    assert folder.checkpoint.parent.is_dir()
    assert folder.read_config() == config
    assert json.loads(folder.manifest.read_text())["seed"] == 7
    assert folder.read_metrics() == []
    assert not folder.finished


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    assert started(tmp_path).read_config() == Config()


@pytest.mark.parametrize("there", ["thesis.tex", ".hidden", "sub/"])
def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path, there: str) -> None:
    if there.endswith("/"):
        (tmp_path / there).mkdir()
    else:
        (tmp_path / there).write_text("my work")
    before = contents(tmp_path), sorted(tmp_path.rglob("*")), tmp_path.stat().st_mtime_ns
    for attempt in (
        lambda: RunFolder(tmp_path).create(Config(), MANIFEST),
        lambda: fit(recipe("digits"), out=tmp_path),
        lambda: fit(recipe("digits"), out=tmp_path, resume=True),
    ):
        with pytest.raises(UserError, match="already exists: choose another --out") as caught:
            attempt()
        assert str(tmp_path) in str(caught.value)
    assert (contents(tmp_path), sorted(tmp_path.rglob("*")), tmp_path.stat().st_mtime_ns) == before


def test_a_run_is_not_created_over_a_run(tmp_path: Path) -> None:
    started(tmp_path / "run")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="--resume"):
        RunFolder(tmp_path / "run").create(Config().replace(lr=1.0), MANIFEST)
    assert contents(tmp_path) == before


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("my work")
    with pytest.raises(UserError, match="already exists"):
        RunFolder(tmp_path / "file").create(Config(), MANIFEST)
    assert contents(tmp_path) == {"file": b"my work"}


def test_an_unwritable_place_is_a_users_error(tmp_path: Path) -> None:
    """Under a regular file nobody can make a folder, not even root."""
    (tmp_path / "file").write_text("my work")
    with pytest.raises(UserError, match=r"^cannot write to .*file/run: Not a directory$"):
        started(tmp_path / "file" / "run")
    assert contents(tmp_path) == {"file": b"my work"}


class Killed(BaseException):
    """Stands for a kill: nobody catches it."""


@pytest.mark.parametrize("writes", range(3))
def test_a_run_killed_while_its_folder_was_made_is_begun_by_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed before the first file, before the last, and in the midst of it."""
    folder = RunFolder(tmp_path / "run")
    left = iter(range(writes))
    true_replace = os.replace

    def kill(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise Killed
        true_replace(source, target)

    monkeypatch.setattr(os, "replace", kill)
    if writes < 2:
        with pytest.raises(Killed):
            started(folder.path)
    else:
        started(folder.path)
        folder.config.rename(tmp_path / "run" / ".config.json.77.tmp")
    monkeypatch.undo()
    assert not folder.config.exists()  # with it, it would be a run
    with pytest.raises(UserError, match="already exists: choose another --out, or --resume to continue it"):
        folder.create(Config(), MANIFEST)
    folder.create(Config().replace(lr=1.0), MANIFEST, resume=True)
    assert folder.read_config().optim.lr == 1.0
    assert set(contents(folder.path)) == {"config.json", "manifest.json", "metrics.jsonl"}


@pytest.mark.parametrize("there", ["thesis.tex", "checkpoint/last.safetensors", "model.safetensors"])
def test_resuming_leaves_other_things_alone(tmp_path: Path, there: str) -> None:
    started(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / there).write_text("my work")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"already exists: choose another --out$"):
        RunFolder(tmp_path).create(Config(), MANIFEST, resume=True)
    assert contents(tmp_path) == before


def test_of_two_that_find_a_folder_free_one_has_it(tmp_path: Path) -> None:
    """The other is done while the first waits for the lock."""
    mine = RunFolder(tmp_path / "run")
    mine.check_free()
    other = started(tmp_path / "run", Config().replace(lr=7.0))
    with mine.held(), pytest.raises(UserError, match="already exists"):
        mine.create(Config(), MANIFEST)
    assert other.read_config().optim.lr == 7.0


def test_clearing_leaves_the_lock_alone(tmp_path: Path) -> None:
    folder = started(tmp_path / "run")
    write_tensors(folder.checkpoint, {"a": torch.ones(2)})
    with folder.held():
        folder.clear()
        assert [path.name for path in folder.path.iterdir()] == [".lock"]
        folder.create(Config(), MANIFEST)  # free again


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_folder, "datetime", Stopped)
    config = recipe("digits", seed=3)
    names = [default_folder(config).as_posix() for _ in range(3)]
    first = "runs/digits-vmcr2-seed3-20260102-030405"
    assert names == [first, f"{first}-2", f"{first}-3"]
    assert all(Path(name).is_dir() for name in names)  # taken when they were named
    assert default_folder(Config().replace(objective="ce")).name == "digits-ce-seed0-20260102-030405"


def test_a_default_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("my work")
    with pytest.raises(UserError, match=r"^cannot write to runs/digits-vmcr2-seed0-"):
        default_folder(recipe("digits"))


# ---- reading


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for path, why in ((tmp_path, r"it has no config\.json"), (tmp_path / "nowhere", "it does not exist")):
        with pytest.raises(UserError, match=f"is not a run folder: {why}"):
            RunFolder(path).read_config()


@pytest.mark.parametrize("found", [FORMAT + 1, FORMAT - 1, "1", None])
def test_another_format_is_refused(tmp_path: Path, found: object) -> None:
    folder = started(tmp_path)
    folder.manifest.write_text(json.dumps({"format": found}))
    before = contents(tmp_path)
    with pytest.raises(UserError) as caught:
        folder.read_config()
    message = str(caught.value)
    assert f"has run-folder format {found}" in message
    assert f"reads format {FORMAT}" in message
    assert __version__ in message
    assert contents(tmp_path) == before


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"[]", b"null", b'"format"', b"\xff\xfe\x00"])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: bytes) -> None:
    folder = started(tmp_path)
    folder.manifest.write_bytes(text)
    with pytest.raises(UserError, match=r"manifest\.json is missing or damaged"):
        folder.read_config()


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    folder = started(tmp_path)
    folder.manifest.unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing or damaged"):
        folder.read_config()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"unknown_setting": 1}', b"\xff\xfe\x00"])
def test_a_damaged_config_is_refused(tmp_path: Path, text: bytes) -> None:
    folder = started(tmp_path)
    folder.config.write_bytes(text)
    with pytest.raises(UserError, match=r"config\.json"):
        folder.read_config()


def test_the_summary_comes_last_and_says_that_it_is_finished(tmp_path: Path) -> None:
    folder = started(tmp_path)
    with pytest.raises(UserError, match=r"has no summary\.json: the run did not finish"):
        folder.read_summary()
    folder.write_summary({"test_accuracy": 0.5, "epochs": 3})
    assert folder.finished
    assert folder.read_summary() == {"test_accuracy": 0.5, "epochs": 3}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe\x00"])
def test_a_damaged_summary_is_a_users_error(tmp_path: Path, text: bytes) -> None:
    folder = started(tmp_path)
    folder.summary.write_bytes(text)
    with pytest.raises(UserError, match=r"summary\.json"):
        folder.read_summary()


# ---- metrics


def test_a_cut_off_line_of_metrics_is_passed_over(tmp_path: Path) -> None:
    folder = started(tmp_path)
    records = [{"epoch": epoch, "loss": 1 / epoch} for epoch in (1, 2, 3)]
    for record in records:
        folder.append(record)
    assert folder.read_metrics() == records
    whole = folder.metrics.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for length in range(len(last)):  # cut anywhere: inside the number, before the brace, before the newline
        folder.metrics.write_bytes(whole[: len(whole) - len(last) + length])
        assert folder.read_metrics() == (records if length == len(last) - 1 else records[:2])


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_metrics() == []


def test_keep_metrics_drops_what_will_be_run_again(tmp_path: Path) -> None:
    folder = started(tmp_path)
    for epoch in range(1, 6):
        folder.append({"epoch": epoch, "loss": epoch / 10})
    with folder.metrics.open("a") as lines:
        lines.write('{"epoch": 6, "lo')  # the kill came here
    folder.keep_metrics(3)
    assert folder.read_metrics() == [{"epoch": e, "loss": e / 10} for e in (1, 2, 3)]
    assert len(folder.metrics.read_text().splitlines()) == 3
    folder.append({"epoch": 4, "loss": 9.0})  # on a line of its own
    assert [record["epoch"] for record in folder.read_metrics()] == [1, 2, 3, 4]
    folder.keep_metrics(0)
    assert folder.read_metrics() == []
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


# ---- manifest


def test_the_manifest_has_what_a_repetition_needs() -> None:
    source = open_data("digits")
    found = manifest(recipe("digits", seed=5), torch.device("cpu"), source, 143)
    assert found["format"] == FORMAT
    assert found["vmcr2"] == __version__
    assert found["torch"] == torch.__version__
    assert found["seed"] == 5
    about = {"name": "digits", "train_checksum": source.train_checksum, "path": None, "title": "", "notes": []}
    about |= {"set_aside": 143}
    assert found["data"] == about | {"sample_shape": [1, 8, 8], "class_names": list("0123456789")}
    assert found["cores"] == os.cpu_count()
    assert found["device"]
    assert found["python"].count(".") == 2
    assert found["git_commit"] is None or len(found["git_commit"]) == 40


def test_the_manifest_keeps_the_recipe_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report compares a run with the recipe that it was made by, and not with today's."""
    config = recipe("digits", lr=0.7, seed=5)
    kept = json.loads(json.dumps(manifest(config, torch.device("cpu"), open_data("digits"), 143)))["recipe"]
    assert kept["lr"] == 0.3
    assert deciding_settings(kept) == recipe("digits").deciding(seed=False)
    own = config.replace(recipe="")
    assert manifest(own, torch.device("cpu"), open_data("digits"), 143)["recipe"] is None
    monkeypatch.delitem(RECIPES, "digits-vmcr2")
    assert manifest(config, torch.device("cpu"), open_data("digits"), 143)["recipe"] is None
