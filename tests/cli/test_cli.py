"""The command line as a person meets it: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from command_line import Said, in_process
from digits_trainer import RUN_FILES
from rich.console import Console
from typer.testing import CliRunner

import vmcr2
from vmcr2.classifiers import NearestSubspace
from vmcr2.cli import _display, _train, app, main
from vmcr2.data import DATASETS, Source, aside_rows, open_data, parted, plain
from vmcr2.data._digits import DigitsReader
from vmcr2.models import build
from vmcr2.runs import FAMILIES, RECIPES, Config, find_recipe, read_record
from vmcr2.runs._recipes import default_origin
from vmcr2.runs._tensor_files import read_tensors, write_tensors
from vmcr2.runs._trainer import Trainer

ROOT = Path(vmcr2.__file__).parent.parent
FILES = RUN_FILES | {"report.html"}
no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder with its time of change and its bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def strict(text: str) -> Any:
    """One JSON value and nothing else; NaN and Infinity are no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def subprocessed(*args: str, cwd: Path, **environment: str) -> Said:
    """``python -m vmcr2``, with its true exit code."""
    threads = str(torch.get_num_threads())  # as here: bit-identical results are promised for one number of threads
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": threads, "HOME": str(cwd)} | environment
    env = {name: value for name, value in env.items() if name not in ("FORCE_COLOR", "VMCR2_DATA")}
    done = subprocess.run(
        [sys.executable, "-m", "vmcr2", *args], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return Said(done.returncode, done.stdout, done.stderr)


def assert_users_mistake(said: Said, *words: str) -> None:
    """Exit code 2 and one sentence."""
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.startswith("vmcr2: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder to work in and an empty home: nothing is found, and whatever is written shows."""
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("VMCR2_DATA", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


class Trained(NamedTuple):
    folder: Path
    said: Said
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of two epochs, made by the command line; tests only look at it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    result = CliRunner().invoke(
        app, ["train", "digits", "--epochs", "2", "--seed", "3", "--json", "--out", str(folder)]
    )
    assert result.exception is None
    said = Said(result.exit_code, result.stdout, result.stderr)
    return Trained(folder, said, read_record(folder / "summary.json"))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that broke before its end."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    said = in_process("train", "digits", "--objective", "ce", "--epochs", "3", "--set", "lr=1e30", "--out", str(folder))
    assert said.code == 1
    return folder


# ---- train


def test_train_with_json_prints_one_object(trained: Trained) -> None:
    assert trained.said.code == 0
    assert trained.said.err == ""
    printed = strict(trained.said.out)
    page = str(trained.folder / "report.html")
    assert printed == {"folder": str(trained.folder), "report": page} | trained.summary
    for name in (
        "test_accuracy",
        "train_delta_r",
        "expansion",
        "compression",
        "batch_delta_r",
        "within_cosine",
        "between_cosine",
        "epochs",
        "seconds",
    ):
        assert isinstance(printed[name], float | int), name
    assert printed["epochs"] == 2
    assert printed["train_delta_r"] == pytest.approx(printed["expansion"] - printed["compression"])
    assert "holdout_accuracy" not in printed
    assert "head_accuracy" not in printed
    assert (printed["train_images"], printed["test_images"]) == (1294, 360)


def test_the_run_folder_is_complete(trained: Trained) -> None:
    assert files(trained.folder) == FILES
    config = Config.from_json((trained.folder / "config.json").read_text())
    assert config.acting() == find_recipe("digits").config.replace(epochs=2, seed=3).acting()
    manifest = strict((trained.folder / "manifest.json").read_text())
    source = open_data("digits")
    assert manifest["seed"] == 3
    about = {
        "name": "digits",
        "train_checksum": source.train_checksum,
        "path": None,
        "title": "",
        "notes": [],
        "set_aside": 143,
    }
    assert manifest["data"] == about | {"sample_shape": [1, 8, 8], "class_names": list("0123456789")}
    metrics = [strict(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in metrics] == [1, 2]
    for record in metrics:
        assert record["batch_delta_r"] == pytest.approx(record["expansion"] - record["compression"], abs=1e-4)
        assert record["mismatch"] >= 0
    objective = read_tensors(trained.folder / "objective.safetensors")
    assert objective["dictionary"].shape == (128, 120)
    assert torch.allclose(objective["dictionary"].norm(dim=0), torch.ones(120), atol=1e-4)
    assert (objective["codes"] >= 0).all()
    spaces = read_tensors(trained.folder / "subspaces.safetensors")
    assert torch.allclose(spaces["bases"].mT @ spaces["bases"], torch.eye(12).expand(10, 12, 12), atol=1e-4)
    evaluation = read_tensors(trained.folder / "evaluation.safetensors")
    right = evaluation["confusion"].trace().item() / 360
    assert right == trained.summary["test_accuracy"]


def test_the_test_accuracy_is_that_of_the_saved_weights(trained: Trained) -> None:
    network = build("mlp", dim=128, input_shape=(1, 8, 8), hidden=(256, 256), batch_norm=True)
    network.load_state_dict(read_tensors(trained.folder / "model.safetensors"))
    network.eval()
    source = open_data("digits")
    train, _ = parted(source.train(), aside_rows(source.train().labels, 0.1, 10))
    with torch.no_grad():
        z = {
            name: network(plain(split.images, torch.arange(len(split.labels)), size=8))
            for name, split in (("train", train), ("test", source.test()))
        }
    classifier = NearestSubspace(10).fit(z["train"], train.labels)
    right = (classifier.predict(z["test"]) == source.test().labels).double().mean().item()
    assert right == trained.summary["test_accuracy"]
    assert right > 0.8  # two epochs already tell digits apart
    saved = read_tensors(trained.folder / "subspaces.safetensors")["bases"]
    assert torch.allclose(classifier.bases @ classifier.bases.mT, saved @ saved.mT, atol=1e-3)


def test_plain_lines_where_the_output_is_no_terminal() -> None:
    said = in_process("train", "--epochs", "3", "--holdout", "200", "--set", "eval_every=2", "--out", "run")
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    assert "\r" not in said.out
    lines = said.out.splitlines()
    assert lines[0] == "digits-vmcr2: vmcr2, mlp, d = 128, 3 epochs -> run"
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    for record, line in zip(metrics, lines[1:4], strict=True):
        assert line.startswith(f"epoch {record['epoch']}/3  ")
        assert f"R {record['expansion']:.1f}  R_c {record['compression']:.1f}" in line
        assert f"ΔR {record['batch_delta_r']:.1f} (batch)" in line
        assert re.search(r"M [\d.e+]+  ", line)
        assert re.search(r"[\d,]+ samples/s(  \d+ s left)?$", line)
        assert line.endswith(" s left") == (record["epoch"] > 1), "the first epoch has the start-up in it"
    assert f"hold-out {metrics[1]['holdout_accuracy']:.4f}" in lines[2]
    assert "hold-out" not in lines[1]
    summary = json.loads(Path("run/summary.json").read_text())
    assert f"{summary['holdout_accuracy']:.4f}" in lines[4]
    assert f"{summary['train_delta_r']:.2f} of at most 50.83" in said.out
    assert lines[-2:] == ["run folder: run", "report: run/report.html"]


def test_a_long_run_prints_about_twenty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = _display.PlainDisplay()
    display.started(Config().replace(epochs=2000), Path("x"), 0)
    figures = {"expansion": 1.0, "compression": 0.5, "batch_delta_r": 0.5, "images_per_second": 10.0}
    for epoch in range(1, 2001):
        display.epoch({"epoch": epoch, "seconds": 1000.0 + 2.0 * epoch} | figures)  # a slow start
    lines = capsys.readouterr().out.splitlines()
    assert 20 <= len(lines) <= 23
    assert lines[2].startswith("epoch 100/2000")
    assert lines[2].endswith("3800 s left")
    assert lines[-1].startswith("epoch 2000/2000")


@pytest.mark.parametrize("width", [80, 200])
def test_the_live_display_shows_all_its_figures(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epoch, R, R_c, ΔR, M, hold-out accuracy, samples/s and the time left, also in a terminal of 80 columns."""
    seen = io.StringIO()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    console = Console(file=seen, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(_display, "Console", lambda *_, **__: console)
    record = {
        "epoch": 30,
        "seconds": 3.0,
        "expansion": 62.2,
        "compression": 29.1,
        "batch_delta_r": 33.1,
        "mismatch": 1.53e5,
        "images_per_second": 23_585.0,
    }
    with _display.display_for(quiet=False) as display:
        assert isinstance(display, _display.LiveDisplay)
        display.started(Config().replace(epochs=200), Path("run"), 0)
        display.epoch(record | {"epoch": 20, "train_delta_r": 26.4, "holdout_accuracy": 0.985})
        display.epoch(record)
    shown = re.split(r"\x1b\[2K|\x1b\[1A|\r", seen.getvalue().rstrip())[-1]  # the last frame, of one line or more
    for figure in ("30/200", "R 62.2", "R_c 29.1", "ΔR 33.1", "M 1.53e+05", "hold-out 0.985", "23,585 samples/s"):
        assert figure in shown
    assert re.search(r"\d:\d\d:\d\d|-:--:--", shown)


def test_a_terminal_that_cannot_spell_delta_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """ΔR on a Latin-1 output: a question mark is no harm, a lost run is."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["vmcr2", "train", "--epochs", "1", "--out", "run"])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert not ended.value.code
    assert b"epoch 1/1" in written.getvalue()
    assert Path("run/summary.json").exists()


def test_without_out_the_folder_is_named_by_recipe_seed_and_time() -> None:
    said = in_process("train", "digits-ce", "--epochs", "1", "--seed", "4", "--json")
    assert said.code == 0
    folder = strict(said.out)["folder"]
    assert re.fullmatch(r"runs/digits-ce-seed4-\d{8}-\d{6}", folder)
    assert files(Path(folder)) == FILES


@pytest.mark.parametrize(("objective", "head"), [("ce", True), ("mcr2", False)])
def test_the_other_objectives_by_the_same_command(objective: str, head: bool) -> None:
    said = in_process("train", "--objective", objective, "--epochs", "2", "--json", "--out", "run")
    assert said.code == 0
    summary = strict(said.out)
    assert ("head_accuracy" in summary) == head
    assert summary["test_accuracy"] > 0.5
    assert Config.from_json(Path("run/config.json").read_text()).recipe == f"digits-{objective}"
    assert FILES - files(Path("run")) <= {"objective.safetensors"}  # exact MCR² has no state


def test_options_and_settings_arrive_in_the_config() -> None:
    said = in_process(
        *("train", "digits", "--epochs", "1", "--seed", "9", "--device", "cpu", "--holdout", "100", "--out", "run"),
        *("--set", "lr=0.2", "--set", "hidden=32,16", "--set", "mu=0.5", "--set", "debias=no", "--json"),
    )
    assert said.code == 0
    config = json.loads(Path("run/config.json").read_text())
    expected = {"epochs": 1, "seed": 9, "device": "cpu", "holdout": 100, "lr": 0.2, "hidden": [32, 16]}
    expected |= {"mu": 0.5, "weight": None, "debias": False, "recipe": "digits-vmcr2"}
    assert {name: config[name] for name in expected} == expected
    shapes = [tuple(value.shape) for value in read_tensors(Path("run/model.safetensors")).values()]
    assert {(32, 64), (16, 32), (128, 16)} <= set(shapes)


# ---- the test set stays unread


def test_with_a_holdout_the_summary_speaks_of_it_and_not_of_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def poison(_: Source) -> None:
        raise AssertionError("the test split was read")

    monkeypatch.setattr(Source, "test", poison)
    said = in_process("train", "--epochs", "2", "--holdout", "200", "--json", "--out", "run")
    assert said.code == 0
    summary = strict(said.out)
    assert 0.5 < summary["holdout_accuracy"] <= 1
    assert not [name for name in summary if name.startswith("test_")]
    assert (summary["train_images"], summary["holdout_images"]) == (1237, 200)
    confusion = read_tensors(Path("run/evaluation.safetensors"))["confusion"]
    assert confusion.sum() == 200
    assert confusion.trace().item() / 200 == summary["holdout_accuracy"]


def test_with_a_holdout_no_byte_of_the_test_split_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer below `Source.test`: not for a checksum either."""
    true_load = DigitsReader.load
    asked = []

    def watch(self: DigitsReader, part: Any) -> Any:
        asked.append(part)
        return true_load(self, part)

    monkeypatch.setattr(DigitsReader, "load", watch)
    assert in_process("train", "--epochs", "1", "--holdout", "200", "--json", "--out", "run").code == 0
    assert set(asked) == {"train"}


def test_without_a_holdout_the_test_split_is_read_after_the_last_epoch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    true_load = DigitsReader.load
    epochs_done = []

    def watch(self: DigitsReader, part: Any) -> Any:
        if part == "test":
            path = Path("run/metrics.jsonl")
            epochs_done.append(len(path.read_text().splitlines()) if path.exists() else 0)
        return true_load(self, part)

    monkeypatch.setattr(DigitsReader, "load", watch)
    assert in_process("train", "--epochs", "2", "--json", "--out", "run").code == 0
    assert epochs_done
    assert set(epochs_done) == {2}


# ---- mistakes


@pytest.fixture
def mistake(tmp_path: Path) -> Callable[..., None]:
    """Runs a command that must fail as a user's mistake and must not write a thing."""

    def check(*args: str, words: tuple[str, ...] = ()) -> None:
        before = tree(tmp_path)
        assert_users_mistake(in_process(*args), *words)
        assert tree(tmp_path) == before

    return check


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("train", "cifar-100"), ("there is no recipe 'cifar-100'", "did you mean", "cifar100")),
        (("train", "digits-vmcr2-papr"), ("no recipe", "digits-vmcr2", "`vmcr2 recipes`")),
        (("recipes", "mnist-vmcr"), ("no recipe 'mnist-vmcr'", "mnist-vmcr2")),
        (("train", "--set", "epoch=3"), ("there is no setting 'epoch'", "did you mean epochs")),
        (("train", "--set", "lr=fast"), ("lr takes a number, got 'fast'",)),
        (("train", "--set", "learning_rate=1"), ("no setting 'learning_rate': did you mean lr?",)),
        (
            ("train", "--epochs", "1", "--set", "epochs=3"),
            ("epochs is set twice, by its own option and by --set: leave one out",),
        ),
        (
            ("train", "--set", "schedule=square"),
            ("schedule takes one of constant, step, cosine, linear, got 'square'",),
        ),
        (("train", "--set", "lr"), ("--set takes key=value, got 'lr'",)),
        (("train", "--set", "lr=-1"), ("lr must be above 0",)),
        (("train", "--set", "mu=1", "--set", "weight=2"), ("mu or weight",)),
        (("train", "--set", "model=resnet19"), ("resnet19", "resnet18")),
        (("train", "--set", "data=digitz"), ("digitz", "did you mean digits")),
        (
            ("train", "--objective", "ce", "--set", "weight=3"),
            ("weight acts with vmcr2 or ce+vmcr2 only, and the objective is ce: leave it out",),
        ),
        (("train", "--data", "x"), ("there is no folder or file x",)),
        (("train", "digits", "--data", "x"), ("digits is part of scikit-learn and needs no path", "leave --data")),
        (("data", "verify", "digits", "--data", "x"), ("needs no path",)),
        (("train", "--epochs", "0"), ("epochs must be at least 1",)),
        (("train", "--seed", "-1"), ("seed must be at least 0",)),
        (("train", "--holdout", "1437"), ("holdout must lie between 1 and 1436",)),
        (("train", "--objective", "mse"), ("--objective takes vmcr2, mcr2, ce, ce+mcr2, ce+vmcr2 or auto, got 'mse'",)),
        (("train", "digits-ce", "--objective", "vmcr2"), ("is for ce, but --objective is vmcr2",)),
        (("train", "cifar100-d100", "--objective", "ce"), ("for ce: choose",)),
        (("train", "--device", "tpu"), ("device takes auto, cpu or cuda",)),
        (("train", "mnist"), ("MNIST was not found in data (does not exist)", "vmcr2 data pack mnist", "VMCR2_DATA")),
        (("evaluate", "nowhere"), ("nowhere is not a run folder",)),
        (("evaluate", "."), ("is not a run folder",)),
        (("data", "verify", "mnits"), ("mnits", "did you mean mnist")),
        (("data", "verify", "cifar10"), ("CIFAR-10 was not found",)),
        (("data", "pack", "mnist", "--from", "."), ("has no MNIST", "train-images-idx3-ubyte.gz")),
        (("data", "pack", "digits", "--from", "."), ("nothing to pack",)),
    ],
)
def test_a_users_mistake(mistake: Callable[..., None], args: tuple[str, ...], words: tuple[str, ...]) -> None:
    mistake(*args, words=words)


@no_cuda
def test_cuda_where_there_is_none(mistake: Callable[..., None], trained: Trained) -> None:
    mistake("train", "--device", "cuda", "--out", "run", words=("torch sees no CUDA device", "--device cpu"))
    mistake("evaluate", str(trained.folder), "--device", "cuda", words=("torch sees no CUDA device",))


def test_data_that_are_not_there(mistake: Callable[..., None]) -> None:
    Path("empty").mkdir()
    mistake(
        *("train", "mnist", "--data", "empty", "--out", "run"),
        words=(
            "/empty: it needs mnist.safetensors",
            "train-images-idx3-ubyte.gz",
            "vmcr2 data pack mnist --from FOLDER",
        ),
    )


@pytest.mark.parametrize("there", ["file", "folder"])
def test_an_out_that_is_there_already(mistake: Callable[..., None], there: str) -> None:
    if there == "file":
        Path("run").write_text("my work")
    else:
        Path("run").mkdir()
        Path("run/notes.txt").write_text("my work")
    mistake("train", "--epochs", "1", "--out", "run", words=("run already exists", "--out"))


def test_an_out_that_is_a_run_already(mistake: Callable[..., None], trained: Trained) -> None:
    before = tree(trained.folder)
    mistake("train", "--epochs", "1", "--out", str(trained.folder), words=("already exists", "--resume"))
    assert tree(trained.folder) == before


def test_an_out_that_cannot_be_written(mistake: Callable[..., None]) -> None:
    Path("file").write_text("my work")
    mistake("train", "--epochs", "1", "--out", "file/run", words=("cannot write to file/run: Not a directory",))


@pytest.mark.parametrize(
    "settings",
    [
        ("mean=0.1,0.2", "std=1,1"),  # digits have one channel
        ("mean=0.5", "std=0"),
        ("augmentation=crop", "crop_padding=0", "image_size=32"),  # no such crop
        ("batch_size=1",),  # BatchNorm of one sample
        ("seed=99999999999999999999",),
        ("objective=ce",),  # of the recipe digits-vmcr2
    ],
)
def test_settings_that_cannot_run_are_found_before_anything_is_written(
    mistake: Callable[..., None], settings: tuple[str, ...]
) -> None:
    mistake("train", "digits-vmcr2", "--epochs", "1", "--out", "run", *(f for s in settings for f in ("--set", s)))


@pytest.mark.parametrize("name", ["[bold]x[/bold]", ":x:", "a" * 300])
def test_the_sentence_repeats_what_was_typed(mistake: Callable[..., None], name: str) -> None:
    """No markup, no emoji, no wrapping."""
    what = f"folder or file {name}" if "/" in name else f"recipe '{name}'"
    mistake("train", name, words=(f"there is no {what}",))


@pytest.mark.parametrize(
    "args", [("train", "--epochs", "three"), ("train", "--epoch", "3"), ("fit",), ("evaluate",), ("train", "a", "b")]
)
def test_what_the_parser_refuses(tmp_path: Path, args: tuple[str, ...]) -> None:
    before = tree(tmp_path)
    said = in_process(*args)
    assert (said.code, said.out) == (2, "")
    assert "Traceback" not in said.err
    assert "Error" in said.err
    assert tree(tmp_path) == before


def test_a_run_that_breaks_says_so_and_exits_with_1(begun: Path) -> None:
    said = in_process("train", "--objective", "ce", "--epochs", "2", "--set", "lr=1e30", "--json", "--out", "run")
    assert said.code == 1
    assert said.out == ""
    assert re.fullmatch(r"vmcr2: training broke in epoch 1, not finite: the features.*Lower lr.*\n", said.err)
    assert not Path("run/summary.json").exists()
    assert Path("run/metrics.jsonl").read_text() == ""
    assert (begun / "config.json").exists()


def test_stopping_a_run_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as early:
        early.setattr(_train, "fit", stop)
        said = in_process("train", "--out", "run")
    assert (said.code, said.err) == (130, "vmcr2: stopped before the run started\n")
    # after some epochs, without a checkpoint, with one, and in a folder with a name of vmcr2's own
    true_record = Trainer.record

    def stop_at_three(trainer: Trainer, position: Any, *rest: Any) -> dict[str, Any]:
        if position.epoch == 3:
            raise KeyboardInterrupt
        return true_record(trainer, position, *rest)

    monkeypatch.setattr(Trainer, "record", stop_at_three)
    said = in_process("train", "--epochs", "4", "--out", "run")
    again = "`vmcr2 train --resume --out run` starts again from the first epoch"
    assert said.code == 130
    assert said.err == f"vmcr2: stopped before the first checkpoint (checkpoint_seconds): {again}\n"
    said = in_process("train", "--epochs", "4", "--out", "saved", "--set", "checkpoint_seconds=0")
    again = "`vmcr2 train --resume --out saved` continues after epoch 2, from the last checkpoint"
    assert (said.code, said.err) == (130, f"vmcr2: stopped; {again}\n")
    said = in_process("train", "--epochs", "4", "--json")
    (own,) = Path("runs").iterdir()
    assert f"--resume --out {own}` starts again" in said.err
    monkeypatch.setattr(Trainer, "record", true_record)
    said = in_process("train", "--resume", "--out", "saved")
    assert (said.code, said.err) == (0, "")
    assert "saved, resumed after epoch 2\n" in said.out


def test_resuming_what_is_not_there_begins_it_and_says_so() -> None:
    said = in_process("train", "--resume", "--out", "new", "--epochs", "1")
    assert said.out.startswith("there is no run in new yet: starting a new one\n")
    assert (said.code, said.err) == (0, "")


# ---- resume


def test_resuming_a_finished_run_says_so_and_changes_nothing(trained: Trained) -> None:
    before = tree(trained.folder)
    said = in_process("train", "--resume", "--out", str(trained.folder))
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"{trained.folder} was already finished; nothing has changed.\n")
    assert f"{trained.summary['test_accuracy']:.4f}" in said.out
    assert "epoch 1/" not in said.out
    again = in_process("train", "--resume", "--out", str(trained.folder), "--json")
    assert strict(again.out) == strict(trained.said.out)
    assert tree(trained.folder) == before
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "others",
    [
        ("--patience", "3"),
        ("--seed", "4"),
        ("--set", "lr=1"),
        ("--objective", "ce"),
        ("--holdout", "9"),
        ("--data", "x"),
    ],
)
def test_resuming_with_other_settings_is_a_mistake(
    mistake: Callable[..., None], trained: Trained, others: tuple[str, ...]
) -> None:
    before = tree(trained.folder)
    mistake("train", "--resume", "--out", str(trained.folder), *others, words=("--resume uses the settings of",))
    assert tree(trained.folder) == before


def test_resuming_by_another_recipe_is_a_mistake(mistake: Callable[..., None], trained: Trained) -> None:
    before = tree(trained.folder)
    mistake("train", "mnist-ce", "--resume", "--out", str(trained.folder))
    assert tree(trained.folder) == before


def test_resuming_without_a_folder_is_a_mistake(mistake: Callable[..., None]) -> None:
    """It would begin a new run, in a folder that nobody named."""
    mistake("train", "--resume", "--epochs", "1", words=("--out",))


def test_resuming_something_else_is_a_mistake(mistake: Callable[..., None]) -> None:
    Path("thesis").mkdir()
    Path("thesis/main.tex").write_text("my work")
    mistake("train", "--resume", "--out", "thesis")


def test_a_run_of_another_version_is_not_touched(
    mistake: Callable[..., None], trained: Trained, tmp_path: Path
) -> None:
    run = tmp_path / "other"
    run.mkdir()
    for name in ("config.json", "summary.json"):
        (run / name).write_bytes((trained.folder / name).read_bytes())
    (run / "manifest.json").write_text(json.dumps({"format": 99}))
    words = ("has run-folder format 99",)
    mistake("train", "--resume", "--out", str(run), words=words)
    mistake("evaluate", str(run), words=words)


# ---- evaluate


def test_evaluate_gives_the_figures_of_the_summary(trained: Trained) -> None:
    before = tree(trained.folder)
    said = in_process("evaluate", str(trained.folder), "--json")
    assert (said.code, said.err) == (0, "")
    figures = strict(said.out)
    assert figures["test_accuracy"] == trained.summary["test_accuracy"]
    assert figures.pop("readout") == trained.summary["readout"]
    assert {name: trained.summary[name] for name in figures} == pytest.approx(figures, rel=1e-6)
    assert {"train_delta_r", "batch_delta_r", "within_cosine", "between_cosine"} <= set(figures)
    text = in_process("evaluate", str(trained.folder))
    assert f"test accuracy, nearest subspace   {figures['test_accuracy']:.4f}" in text.out
    assert "\x1b" not in text.out
    assert tree(trained.folder) == before


def test_evaluate_of_a_run_with_a_holdout_reads_the_test_set() -> None:
    assert in_process("train", "--epochs", "1", "--holdout", "437", "--json", "--out", "run").code == 0
    before = tree(Path("run"))
    figures = strict(in_process("evaluate", "run", "--json").out)
    assert figures["test_accuracy"] * 360 == pytest.approx(round(figures["test_accuracy"] * 360))
    assert not [name for name in figures if name.startswith("holdout")]
    summary = json.loads(Path("run/summary.json").read_text())
    assert figures["train_delta_r"] == pytest.approx(summary["train_delta_r"])  # of the same 1000 images
    assert tree(Path("run")) == before


def test_other_data_than_a_run_s_own_are_noticed(mistake: Callable[..., None]) -> None:
    write_mnist(Path("raw"))
    small = ("--epochs", "1", "--set", "batch_size=20", "--set", "dim=20", "--set", "atoms_per_class=2")
    assert in_process("train", "mnist", "--data", "raw", *small, "--json", "--out", "run").code == 0
    assert in_process("evaluate", "run", "--json").err == ""
    write_mnist(Path("other"), train=60)
    said = in_process("evaluate", "run", "--data", "other", "--json")
    assert said.code == 0
    assert "test_accuracy" in strict(said.out)
    expected = "run was started with other training data than other holds now: its summary.json has the figures of the"
    assert said.err == f"vmcr2: {expected} old data\n"
    Path("raw").rename("away")
    Path("other").rename("raw")
    finished = in_process("train", "--resume", "--out", "run")
    assert finished.code == 0
    assert "other training data" in finished.out
    Path("run/summary.json").unlink()
    mistake(
        "train", "--resume", "--out", "run", words=("started with other training data", "new run with another --out")
    )


def test_evaluate_of_a_run_that_did_not_finish(mistake: Callable[..., None], begun: Path) -> None:
    mistake("evaluate", str(begun), words=("did not finish",))


@pytest.mark.parametrize("victim", ["model.safetensors", "subspaces.safetensors", "summary.json", "config.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_evaluate_of_a_damaged_run(
    mistake: Callable[..., None], trained: Trained, tmp_path: Path, victim: str, damage: str
) -> None:
    run = tmp_path / "damaged"
    for name in FILES:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes((trained.folder / name).read_bytes())
    if damage == "gone":
        (run / victim).unlink()
    else:
        (run / victim).write_bytes((run / victim).read_bytes()[:-30])
    mistake("evaluate", str(run), words=(victim,))


# ---- recipes


def test_recipes_lists_every_name() -> None:
    result = CliRunner().invoke(app, ["recipes"])
    assert result.exit_code == 0
    listed = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines() if "  " in line}
    assert listed == {name: make().title for name, make in RECIPES.items()}
    assert result.stdout.splitlines()[-1] == f"Names to use with --objective: {', '.join(FAMILIES)}"
    assert strict(CliRunner().invoke(app, ["recipes", "--json"]).stdout) == listed


@pytest.mark.parametrize("name", ["cifar100-vmcr2", "cifar100-preact-vmcr2-paper", "digits", "mnist-ce"])
def test_a_recipe_shows_every_value_and_its_origin(name: str) -> None:
    found = find_recipe(name)
    result = CliRunner().invoke(app, ["recipes", name])
    assert result.exit_code == 0
    first, *lines = result.stdout.splitlines()
    assert first == f"{found.config.recipe}: {found.title}"
    values = {key: value for key, value in found.config.acting().items() if key != "recipe"}
    assert len(lines) == len(values)
    for line, (key, value) in zip(lines, values.items(), strict=True):
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        origin = found.origins.get(key, default_origin(key))
        assert re.fullmatch(rf"  {key} +{re.escape(shown)} *{re.escape(origin)}", line), line
        # as it is shown it can be given to --set
        assert found.config.with_settings([f"{key}={shown}"]).flat()[key] == value


def test_a_recipe_of_the_paper_names_sections() -> None:
    shown = CliRunner().invoke(app, ["recipes", "cifar100-vmcr2-paper"]).stdout
    for pattern in (
        r"lr +0\.001 +§4\.1",
        r"mu +1\.0 +§4\.1",
        r"eps_sq +0\.5 +§4\.1",
        r"batch_size +2000 +§4\.1",
        r"momentum +0\.9 +not given in the paper, ours",
        r"weight_decay +0\.0005 +not given in the paper, ours",
        r"crop_padding +8 +appendix",
    ):
        assert re.search(rf"^  {pattern}", shown, re.MULTILINE), pattern


def test_a_recipe_as_json() -> None:
    shown = strict(CliRunner().invoke(app, ["recipes", "cifar100-vmcr2", "--json"]).stdout)
    found = find_recipe("cifar100-vmcr2")
    values = json.loads(found.config.to_json())
    assert {key: entry["value"] for key, entry in shown.items()} == {k: v for k, v in values.items() if k != "recipe"}
    assert {key: entry["origin"] for key, entry in shown.items() if key in found.origins} == found.origins
    assert shown["weight"]["origin"].startswith("ours, not the paper's")


# ---- data


def write_mnist(folder: Path, train: int = 40, test: int = 20) -> None:
    """Four small files in the idx format; each image is as bright as its label says."""
    folder.mkdir(parents=True)
    for stem, count in (("train", train), ("t10k", test)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = np.random.default_rng(count).integers(0, 20, (count, 28, 28)) + 23 * labels[:, None, None]
        for kind, items in (("images", images.astype(np.uint8)), ("labels", labels)):
            header = bytes((0, 0, 8, items.ndim)) + struct.pack(f">{items.ndim}I", *items.shape)
            name = f"{stem}-{kind}-idx{items.ndim}-ubyte.gz"
            (folder / name).write_bytes(gzip.compress(header + items.tobytes()))


def test_data_list_names_every_set_and_where_it_was_found() -> None:
    write_mnist(Path("data/mnist"))
    result = CliRunner().invoke(app, ["data", "list"])
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert set(lines) == set(DATASETS)
    assert lines["digits"].endswith("embedded")
    assert lines["mnist"].endswith("data/mnist")
    assert all(line.endswith("not found") for name, line in lines.items() if name not in ("digits", "mnist"))
    assert all(DATASETS[name].title in line for name, line in lines.items())


def test_data_list_as_json() -> None:
    """`--json` wherever a person might script, and where the data lie is what a script asks first."""
    result = CliRunner().invoke(app, ["data", "list", "--json"])
    assert result.exit_code == 0
    assert "digits" in strict(result.stdout)


def test_data_pack_and_verify() -> None:
    write_mnist(Path("raw"))
    packed = CliRunner().invoke(app, ["data", "pack", "mnist", "--from", "raw", "--to", "packed.safetensors"])
    assert packed.exit_code == 0
    assert packed.stdout == "packed.safetensors\n"
    ours, raw = open_data("mnist", Path("packed.safetensors")), open_data("mnist", Path("raw"))
    assert torch.equal(ours.train().images, raw.train().images)
    assert ours.train().labels.tolist() == [i % 10 for i in range(40)]
    assert ours.checksum == raw.checksum
    for place in ("packed.safetensors", "raw"):
        said = CliRunner().invoke(app, ["data", "verify", "mnist", "--data", place])
        assert said.exit_code == 0
        assert said.stdout.startswith("mnist: 40 + 20 images of 1×28×28, 10 classes, not the published 60000 + 10000")
        assert f"sha256 {raw.checksum}; {place}" in said.stdout
        shown = strict(CliRunner().invoke(app, ["data", "verify", "mnist", "--data", place, "--json"]).stdout)
        assert shown == {"name": "mnist", "verified": said.stdout.rstrip("\n")}


def test_data_pack_has_a_default_place_where_it_is_found_again() -> None:
    write_mnist(Path("raw"))
    assert in_process("data", "pack", "mnist", "--from", "raw") == (0, "data/mnist.safetensors\n", "")
    assert "data/mnist.safetensors" in in_process("data", "list").out
    assert in_process("data", "verify", "mnist").code == 0


def test_home_is_spelt_out_by_every_command(tmp_path: Path) -> None:
    write_mnist(tmp_path / "home" / "raw")
    assert in_process("data", "pack", "mnist", "--from=~/raw", "--to=~/packed").code == 0
    assert in_process("data", "verify", "mnist", "--data=~/packed").code == 0
    small = ("--epochs", "1", "--set", "batch_size=20", "--set", "dim=20", "--set", "atoms_per_class=2")
    assert in_process("train", "mnist", "--data=~/packed", *small, "--json", "--out", "run").code == 0
    assert in_process("evaluate", "run", "--data=~/raw", "--json") == in_process("evaluate", "run", "--json")
    assert not Path("~").exists()


def test_data_pack_overwrites_nothing(mistake: Callable[..., None]) -> None:
    write_mnist(Path("raw"))
    Path("mine.safetensors").write_text("my work")
    mistake("data", "pack", "mnist", "--from", "raw", "--to", "mine.safetensors", words=("already exists",))


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damaged_data_are_a_users_mistake(mistake: Callable[..., None], damage: str) -> None:
    write_mnist(Path("raw"))
    assert in_process("data", "pack", "mnist", "--from", "raw", "--to", "m.safetensors").code == 0
    whole = bytearray(Path("m.safetensors").read_bytes())
    whole[-5000] ^= 1
    Path("m.safetensors").write_bytes(whole if damage == "flipped" else whole[:-100])
    mistake("data", "verify", "mnist", "--data", "m.safetensors", words=("m.safetensors",))
    mistake("train", "mnist", "--data", "m.safetensors", "--epochs", "1", "--out", "run", words=("m.safetensors",))


def test_training_on_files_of_ones_own_place() -> None:
    write_mnist(Path("raw"))
    said = in_process(
        *("train", "mnist", "--data", "raw", "--epochs", "1", "--set", "batch_size=20", "--set", "dim=20"),
        *("--set", "atoms_per_class=2", "--json", "--out", "run"),
    )
    assert said.code == 0, said.err
    summary = strict(said.out)
    assert (summary["train_images"], summary["test_images"]) == (40, 20)
    config = json.loads(Path("run/config.json").read_text())
    assert config["data"] == "mnist"
    assert Path(config["data_path"]).resolve() == Path("raw").resolve()
    assert strict(in_process("evaluate", "run", "--json").out)["test_accuracy"] == summary["test_accuracy"]
    Path("raw").rename("moved")
    assert_users_mistake(in_process("evaluate", "run"), "MNIST was not found")
    moved = in_process("evaluate", "run", "--data", "moved", "--json")
    assert strict(moved.out)["test_accuracy"] == summary["test_accuracy"]


def test_a_holdout_needs_no_test_files() -> None:
    """The proof that the test set is not read: it is not there."""
    write_mnist(Path("raw"))
    for path in Path("raw").glob("t10k*"):
        path.unlink()
    said = in_process(
        *("train", "mnist", "--data", "raw", "--epochs", "1", "--holdout", "10", "--set", "batch_size=20"),
        *("--set", "dim=20", "--set", "atoms_per_class=2", "--json", "--out", "run"),
    )
    assert said.code == 0, said.err
    assert strict(said.out)["holdout_images"] == 10


def test_a_report_without_a_confusion_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of very many classes have none. Drawing is tested with the report: here empty files save seconds."""
    monkeypatch.setattr("vmcr2.report._figures._write._rendered", lambda figure, kind: b"")
    assert in_process("train", "--epochs", "1", "--json", "--out", "run").code == 0
    path = Path("run/evaluation.safetensors")
    kept = {name: value for name, value in read_tensors(path).items() if name != "confusion"}
    write_tensors(path, kept, {"class_names": json.dumps([str(digit) for digit in range(10)])})
    said = in_process("report", "run", "--figures", "pictures")
    assert (said.code, said.err) == (0, "")
    assert list(Path("pictures").glob("spectra.*"))
    assert not list(Path("pictures").rglob("*confusion*"))


# ---- help, version, and the true command


COMMANDS = ("train", "evaluate", "predict", "embed", "neighbors", "export", "serve", "recipes", "report", "sweep")


def test_every_command_is_there_once() -> None:
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert sorted(names) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("", "vmcr2 train"),
        ("train", "vmcr2 train digits --objective ce"),
        ("train", "--set lr=0.1"),
        ("train", "--resume --out"),
        ("evaluate", "vmcr2 evaluate runs/"),
        ("export", "vmcr2 export runs/mine -o model.onnx"),
        ("serve", "vmcr2 serve runs/mine"),
        ("recipes", "vmcr2 recipes cifar100-vmcr2"),
        ("data list", "vmcr2 data list"),
        ("data verify", "vmcr2 data verify cifar100 --data"),
        ("data pack", "vmcr2 data pack cifar100 --from"),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_teaches_by_example(command: str, example: str, flag: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), flag], prog_name="PROGRAM")
    assert result.exit_code == 0
    assert example in result.stdout  # the usage line says PROGRAM, so this is an example


def test_train_help_names_every_option() -> None:
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    for option in (
        "data",
        "objective",
        "out",
        "epochs",
        "holdout",
        "patience",
        "seed",
        "device",
        "set",
        "resume",
        "log",
        "json",
    ):
        assert f"--{option}" in shown


def test_version_in_process() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"{vmcr2.__version__}\n")


# each start of a process imports torch and scikit-learn, which takes seconds: two starts are enough


def test_the_true_command_trains(tmp_path: Path) -> None:
    work = tmp_path / "work"
    said = subprocessed("train", "--epochs", "2", "--json", "--out", "run", cwd=work)
    assert (said.code, said.err) == (0, "")
    assert files(work) == {f"run/{name}" for name in FILES}
    before = tree(work)
    evaluated = in_process("evaluate", "run", "--json")
    assert evaluated.code == 0
    assert strict(evaluated.out)["test_accuracy"] == strict(said.out)["test_accuracy"]
    assert tree(work) == before


def test_the_true_command_fails_with_2(tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert_users_mistake(subprocessed("train", "digit", cwd=work), "no recipe 'digit'", "did you mean digits")
    assert tree(work) == {}
