"""Damaged and hostile run folders: harmless, or one sentence; a damaged checkpoint is replaced by the one before."""

from __future__ import annotations

import json
import os
import resource
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import in_process
from digits_trainer import quick
from run_files import metrics, same, weights, without_clocks
from seeds import SEED

from tests.faults.damage import StopAfter, StoppedError, Subject, flip, put, tried
from vmcr2.report import page, read_run
from vmcr2.runs import RunFolder, UserError, evaluate_run, find_checkpoint, fit, load_run, read_position
from vmcr2.runs._tensor_files import write_tensors


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("kind", [flip, put])
def test_whatever_is_damaged_nothing_is_believed_in_silence(kind: Any, subject: Subject) -> None:
    found = tried(subject, kind, 60, SEED)
    assert found["defects"] == []
    assert all(counts.get("noticed", 0) + counts.get("harmless", 0) > 5 for counts in found["counts"].values())
    assert sum(counts.get("noticed", 0) for counts in found["counts"].values()) > 5


# ---- checkpoints


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def stopped(subject: Subject, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(subject.stopped, tmp_path / "run")))


def spoil(path: Path) -> None:
    """A bit in the middle of the tensors."""
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.unlink()
    path.write_bytes(content)


def test_two_checkpoints_are_kept_and_the_one_before_is_used(subject: Subject, stopped: RunFolder) -> None:
    assert [read_position(path).epoch for path in (stopped.checkpoint, stopped.checkpoint_before)] == [3, 2]
    spoil(stopped.checkpoint)
    assert find_checkpoint(stopped) == stopped.checkpoint_before
    notes = Notes()
    fit(subject.config, out=stopped.path, resume=True, callbacks=[notes])
    (said,) = notes.said
    assert "last.safetensors is damaged" in said
    assert "The checkpoint before it is used, of epoch 2" in said
    assert same(weights(stopped.path), subject.weights)
    assert without_clocks(stopped.path) == without_clocks(subject.finished)


def test_without_any_whole_checkpoint_a_sentence_says_what_to_do(subject: Subject, stopped: RunFolder) -> None:
    for path in (stopped.checkpoint, stopped.checkpoint_before):
        spoil(path)
    said = in_process("train", "--resume", "--out", str(stopped.path))
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert f"remove {stopped.checkpoint.parent}, and --resume starts again from the first epoch" in said.err
    shutil.rmtree(stopped.checkpoint.parent)
    fit(subject.config, out=stopped.path, resume=True)
    assert same(weights(stopped.path), subject.weights)


def test_the_one_before_also_serves_if_the_last_is_gone(subject: Subject, stopped: RunFolder) -> None:
    stopped.checkpoint.unlink()
    fit(subject.config, out=stopped.path, resume=True)
    assert same(weights(stopped.path), subject.weights)


def test_a_file_system_without_second_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: Subject) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    run = fit(subject.config, out=tmp_path / "run")
    folder = RunFolder(run.folder)
    assert [read_position(path).epoch for path in (folder.checkpoint, folder.checkpoint_before)] == [4, 3]
    assert not list(run.folder.rglob("*.tmp"))


def test_folders_without_checksums_stay_readable(subject: Subject, tmp_path: Path) -> None:
    """As vmcr2 before 0.6 wrote them."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(subject.finished, tmp_path / "run"))
    for path in folder.rglob("*.safetensors"):
        tensors = load_file(path)
        path.unlink()
        save_file(tensors, path)
    for path in folder.glob("*.json"):
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "checksum"}))
    assert torch.equal(load_run(folder).predict(subject.images, labels=True), subject.answers[0])


def test_a_changed_setting_is_noticed_and_can_be_meant(subject: Subject, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(subject.finished, tmp_path / "run"))
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"epochs": 4', '"epochs": 5'))
    with pytest.raises(UserError, match=r'changed by hand: .* If the change is right, remove "checksum" from it'):
        RunFolder(folder).read_config()
    changed = json.loads((folder / "config.json").read_text())
    del changed["checksum"]
    (folder / "config.json").write_text(json.dumps(changed))
    assert RunFolder(folder).read_config().optim.epochs == 5


# ---- metrics


@pytest.mark.parametrize(
    "line",
    [
        *(b"\xff\xfe not a letter", b"{}", b"null", b"[1, 2]", b"7", b'{"epoch": null}', b'{"epoch": "1"}'),
        *(b'{"epoch": 1, "loss": 2.0, "checksum": "00000000"}', b"[" * 10_000, b'{"epoch": ' + b"9" * 5000 + b"}"),
        b'{"epoch": 1, "x": "' + b"y" * (3 * 2**20) + b'"}',
    ],
    ids=lambda line: line[:16].decode(errors="replace"),
)
def test_a_damaged_line_of_metrics_is_skipped_and_said(line: bytes, subject: Subject, stopped: RunFolder) -> None:
    before = metrics(stopped.path)
    first, *rest = stopped.metrics.read_bytes().splitlines(keepends=True)
    stopped.metrics.write_bytes(first + line + b"\n" + b"".join(rest))
    assert metrics(stopped.path) == before
    record = read_run(stopped.path)
    assert record.problems == ("metrics.jsonl: 1 damaged lines are left out.",)
    notes = Notes()
    fit(subject.config, out=stopped.path, resume=True, callbacks=[notes])
    assert notes.said == [f"{stopped.metrics}: 1 damaged lines are left out"]
    assert without_clocks(stopped.path) == without_clocks(subject.finished)


# ---- what a stranger may put into a folder


def copied(subject: Subject, tmp_path: Path) -> Path:
    return Path(shutil.copytree(subject.finished, tmp_path / "run"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json", "checkpoint", "model.safetensors", ".lock"])
def test_links_out_of_the_folder_are_refused(name: str, subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    (tmp_path / "precious").mkdir()
    target = tmp_path / "precious" / "file"
    (folder / name).rename(target)
    (folder / name).symlink_to(target)
    before = {path: path.read_bytes() for path in (tmp_path / "precious").rglob("*") if path.is_file()}
    for command in (["evaluate"], ["report"], ["train", "--resume", "--epochs", "9", "--out"]):
        said = in_process(*command, str(folder))
        assert said.code == 2, command
        assert f"{name} is a link to {target}, out of the run folder" in said.err
    assert {path: path.read_bytes() for path in before} == before


def test_a_pipe_and_an_endless_device_are_not_read(subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    for name in ("metrics.jsonl", "summary.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(UserError, match=f"{name} is not a file"):
            read_run(folder)
        with pytest.raises(UserError, match=f"{name} is not a file"):
            load_run(folder)
        (folder / name).unlink()
        (folder / name).touch()


def test_links_inside_the_folder_and_to_it_are_fine(subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    (folder / "model.safetensors").symlink_to("weights.safetensors")
    (tmp_path / "link").symlink_to(folder)
    assert torch.equal(load_run(tmp_path / "link").predict(subject.images, labels=True), subject.answers[0])


def test_settings_of_a_size_that_no_machine_has(subject: Subject, tmp_path: Path) -> None:
    """They are refused before their memory is asked for: a tenth of a gibibyte more is not taken."""
    folder = copied(subject, tmp_path)
    whole = {k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k != "checksum"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for changes, words in (
        ({"dim": 10**9}, "GiB of weights, more than half of this machine's memory|subspaces of 1000000000 features"),
        ({"hidden": [10**9]}, "GiB of weights, more than half of this machine's memory"),
        ({"hidden": [1] * 5000}, "hidden has 5000 layers: give at most 1000"),
        ({"epochs": 10**18}, "epochs must be at most 1e\\+09"),
        ({"seed": 10**30}, "seed must be below"),
        ({"atoms_per_class": 10**400}, "atoms_per_class must be below 1e\\+300, got a number of 401 digits"),
        ({"atoms_per_class": 10**18}, "need more memory than there is"),
        ({"lr": "1e400"}, "lr takes"),
        ({"components": float("nan")}, "components takes a whole number, got nan"),
        ({"recipe": ["x"]}, "recipe takes a text"),
        ({"objective": {"a": 1}}, "objective takes one of"),
    ):
        (folder / "config.json").write_text(json.dumps(whole | changes))
        for use in (load_run, evaluate_run):
            with pytest.raises(UserError, match=words) as error:
                use(folder, device="cpu")
            assert "\n" not in str(error.value)
        with suppress(UserError):
            page([read_run(folder)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    (folder / "config.json").write_text("[" * 10_000 + "]" * 10_000)
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(folder)


def test_a_header_that_claims_more_than_there_is(subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    claims = {"bases": {"dtype": "F32", "shape": [10**6, 10**6, 10**3], "data_offsets": [0, 4 * 10**15]}}
    for header in (claims, {"bases": claims["bases"] | {"data_offsets": [0, 8]}}, {"__metadata__": "x"}):
        text = json.dumps(header).encode()
        for name in ("model", "subspaces", "evaluation", "kept_samples", "calibration"):
            (folder / f"{name}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        with pytest.raises(UserError, match=r"safetensors is missing or damaged"):
            load_run(folder)
        assert "</html>" in page([read_run(folder)])
    for length in (2**63, 2**40):
        (folder / "subspaces.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
        with pytest.raises(UserError, match=r"safetensors is missing or damaged"):
            load_run(folder)


@pytest.mark.parametrize("name", ["subspaces", "calibration", "kept_samples", "model", "objective", "evaluation"])
def test_tensors_of_other_shapes_and_names(name: str, subject: Subject, tmp_path: Path) -> None:
    from vmcr2.runs import read_tensors

    whole = read_tensors(subject.finished / f"{name}.safetensors")
    for number, key in enumerate(whole):
        folder = Path(shutil.copytree(subject.finished, tmp_path / str(number)))
        value = whole[key]
        for other in (
            {k: v for k, v in whole.items() if k != key},
            whole | {key: value.reshape(-1)[: value.numel() // 2].clone()},
            whole | {key: value.reshape(1, 1, *value.shape)},
            whole | {key: torch.zeros(0, *value.shape[1:], dtype=value.dtype)},
            whole | {key: torch.full_like(value, float("nan") if value.is_floating_point() else 99)},
            whole | {key: value.double() if value.dtype != torch.float64 else value.long()},
        ):
            write_tensors(folder / f"{name}.safetensors", other)
            if name == "evaluation":
                assert "</html>" in page([read_run(folder)])
                continue
            with suppress(UserError):
                run = load_run(folder, device="cpu")
                run.predict(subject.images)
                run.neighbors(subject.images, 2)


def test_a_best_state_that_is_damaged_says_what_to_do(tmp_path: Path) -> None:
    config = quick("ce", holdout=200, patience=50, eval_every=1)
    with suppress(StoppedError):
        fit(config, out=tmp_path / "run", callbacks=[StopAfter(4)])
    folder = RunFolder(tmp_path / "run")
    spoil(folder.best)
    with pytest.raises(UserError, match=r"best\.safetensors, the best state so far, is damaged: remove it"):
        fit(config, out=folder.path, resume=True)
    folder.best.unlink()
    assert fit(config, out=folder.path, resume=True).summary["best_epoch"] >= 5


def test_a_damaged_model_can_be_made_again_from_the_checkpoint(subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    spoil(folder / "model.safetensors")
    said = in_process("evaluate", str(folder))
    assert said.code == 2
    assert "model.safetensors is damaged: its checksum is not that of its content" in said.err
    (folder / "summary.json").unlink()
    fit(subject.config, out=folder, resume=True)
    assert same(weights(folder), subject.weights)


def test_the_command_line_says_it_in_one_line(subject: Subject, tmp_path: Path) -> None:
    folder = copied(subject, tmp_path)
    whole = {k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k != "checksum"}
    (folder / "config.json").write_text(json.dumps(whole | {"hidden": [33]}))
    said = in_process("evaluate", str(folder))
    assert said.code == 2
    assert said.err.startswith("vmcr2: the weights in ")
    assert said.err.count("\n") == 1
