"""Logs of TensorBoard and Weights & Biases, read back from their files. Nothing needs a network."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from digits_trainer import quick
from run_files import metrics

from vmcr2.runs import RunFolder, TensorBoardLog, UserError, WandbLog, fit, log_named

CONFIG = {"epochs": 5, "eval_every": 2, "holdout": 287}


class Kill:
    """Stands for a kill after an epoch: no checkpoint, but the logs have the epoch."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch

    def epoch(self, record: dict[str, Any]) -> None:
        if record["epoch"] == self.last:
            raise KeyboardInterrupt


def numbers(record: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if isinstance(value, int | float)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a person may stand: logs must not appear there. wandb is offline, and leaves the home folder alone."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "wandb-home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_DIR", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    yield place
    assert not list(place.iterdir())


# ---- tensorboard


def curves(folder: Path) -> tuple[dict[str, dict[int, float]], Any]:
    """Every curve of the log by epoch, as TensorBoard itself reads it, and its other content."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    read = {}
    for tag in found.Tags()["scalars"]:
        events = found.Scalars(tag)
        assert len({event.step for event in events}) == len(events), f"{tag} has an epoch twice"
        read[tag] = {event.step: event.value for event in events}
    return read, found


def assert_curves(folder: Path) -> None:
    """They are the lines of metrics and the summary."""
    read, _ = curves(folder)
    lines = metrics(folder)
    for line in lines:
        for name, value in numbers(line).items():
            assert read[name][line["epoch"]] == pytest.approx(value, rel=1e-6)
    assert list(read["loss"]) == [line["epoch"] for line in lines]
    summary = numbers(RunFolder(folder).read_summary())
    assert {name: read[f"summary/{name}"] for name in summary} == {
        name: {lines[-1]["epoch"]: pytest.approx(value, rel=1e-6)} for name, value in summary.items()
    }


def test_tensorboard_has_lines_summary_and_settings(tmp_path: Path) -> None:
    run = fit(quick("ce", **CONFIG), out=tmp_path / "run", callbacks=[TensorBoardLog()])
    assert_curves(run.folder)
    _, found = curves(run.folder)
    from tensorboard.plugins.hparams import plugin_data_pb2

    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert settings["lr"].number_value == pytest.approx(run.config.optim.lr)
    assert settings["objective"].string_value == "ce"
    assert settings["hidden"].string_value == "(32,)"
    assert set(settings) == set(run.config.acting())


def test_a_resumed_run_continues_tensorboard_s_log(tmp_path: Path) -> None:
    """Epochs that are trained again are there once; so are those after an error, and those of an extension."""
    config = quick("ce", **CONFIG)
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "run", callbacks=[TensorBoardLog(), Kill(4)])
    assert list(curves(tmp_path / "run")[0]["loss"]) == [1, 2, 3, 4]  # the checkpoint is of epoch 3
    run = fit(config, out=tmp_path / "run", resume=True, callbacks=[TensorBoardLog()])
    assert_curves(run.folder)
    longer = fit(config.replace(epochs=7), out=tmp_path / "run", resume=True, callbacks=[TensorBoardLog()])
    read, _ = curves(longer.folder)
    assert list(read["loss"]) == [1, 2, 3, 4, 5, 6, 7]
    assert read["summary/readout_accuracy"][7] == pytest.approx(longer.summary["readout_accuracy"])


# ---- wandb


def parts(data: bytes) -> Iterator[bytes]:
    """The entries of wandb's file: a LevelDB log, which is cut into blocks of 32 KiB, after seven bytes of its own."""
    at, entry = 7, b""
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        entry += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def read_wandb(path: Path) -> dict[str, Any]:
    """What a run sent to wandb, from its file."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its own process writes the file: wait until that has ended, as it does with a person's program
    found: dict[str, Any] = {"history": {}, "summary": {}, "config": {}, "exit": None}
    for entry in parts(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(entry)  # type: ignore[attr-defined]
        match record.WhichOneof("record_type"):
            case "run":
                found |= {"id": record.run.run_id, "name": record.run.display_name, "project": record.run.project}
                found["config"] |= items(record.run.config.update)
            case "history":
                found["history"][record.history.step.num] = items(record.history.item)
            case "summary":
                found["summary"] |= items(record.summary.update)
            case "exit":
                found["exit"] = record.exit.exit_code
    return found


def items(updates: Any) -> dict[str, Any]:
    return {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in updates}


def without_own(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if not name.startswith("_")}


def wandb_files(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))


def test_wandb_has_lines_summary_and_settings_and_goes_on_under_its_name(tmp_path: Path) -> None:
    config = quick("ce", **CONFIG)
    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "run", callbacks=[WandbLog(), Kill(4)])
    (path,) = wandb_files(tmp_path / "run")
    stopped = read_wandb(path)
    assert (stopped["name"], stopped["project"], stopped["exit"]) == ("run", "vmcr2", 1)
    assert list(stopped["history"]) == [1, 2, 3, 4]
    assert {name: stopped["config"][name] for name in config.acting()} == json.loads(config.to_json())
    path.parent.rename(tmp_path / "first")  # wandb names a folder by the second
    run = fit(config, out=tmp_path / "run", resume=True, callbacks=[WandbLog()])
    (other,) = wandb_files(tmp_path / "run")
    ended = read_wandb(other)
    assert (ended["id"], ended["exit"]) == (stopped["id"], 0)
    lines = {line["epoch"]: numbers(line) for line in metrics(run.folder)}
    assert {step: without_own(line) for step, line in ended["history"].items()} == {
        step: lines[step] for step in (4, 5)
    }
    assert {step: without_own(line) for step, line in stopped["history"].items() if step < 4} == {
        step: lines[step] for step in (1, 2, 3)
    }
    assert {name: ended["summary"][name] for name in run.summary} == run.summary, "not the last line's figures"


def test_a_wandb_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = WandbLog()

    def refuse(**_: Any) -> None:
        raise log._wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(log._wandb, "init", refuse)
    with pytest.raises(UserError, match=r"wandb did not start: No API key configured; run `wandb login`, or set"):
        fit(quick("ce", **CONFIG), out=tmp_path / "run", callbacks=[log])


# ---- the command


def test_the_command_logs(tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = ("--objective", "ce", "--epochs", "2", "--json", "--out", str(out))
    said = in_process("train", *short, "--log", "tensorboard", "--log", "wandb")
    assert said.code == 0, said.err
    assert json.loads(said.out)["epochs"] == 2  # stdout has nothing else
    assert_curves(out)
    (path,) = wandb_files(out)
    assert list(read_wandb(path)["history"]) == [1, 2]


def test_what_the_command_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ("--out", str(tmp_path / "run"))
    said = in_process("train", *out, "--log", "tensorbord")
    assert (said.code, said.out) == (2, "")
    assert said.err == "vmcr2: --log takes tensorboard or wandb, got 'tensorbord': did you mean tensorboard?\n"
    for name, module in (("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")):
        with monkeypatch.context() as missing:
            missing.setitem(sys.modules, module, None)
            said = in_process("train", *out, "--log", name)
        assert said.code == 2
        assert said.err.endswith(f"pip install 'vmcr2[{name}]'\n")
        assert said.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_log_that_never_started_can_be_closed() -> None:
    for name in ("tensorboard", "wandb"):
        log_named(name).failed(ValueError())
