"""`vmcr2 bench` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import Said, in_process
from typer.testing import CliRunner

from vmcr2.bench import _contenders as ways, _scale_contenders as steps, latch, objectives, scale
from vmcr2.cli import app


def said_by(*args: str) -> Said:
    return in_process("bench", *args)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


MEASURED = {
    "scale": "5 classes …\n",
    "objectives": "batches of 60, d 16, 4 classes …\n",
    "latch": "100 samples, d 20, 4 classes …\n",
}


@pytest.mark.parametrize("name", ["objectives", "latch", "scale"])
def test_the_table_is_printed_and_the_figures_are_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = ways.Size("small", 60, 16, 4, 2)
    monkeypatch.setattr(objectives, "sizes_for", lambda _: [size])
    monkeypatch.setattr(latch, "SIZES", {"cpu": [latch.LatchSize(100, 20, 4, 2)]})
    monkeypatch.setattr(scale, "SHAPES", {"cpu": steps.Shape(32, 12, 2, 4)})
    monkeypatch.setattr(scale, "CLASSES", (5,))
    measured = scale.measure
    monkeypatch.setattr(scale, "measure", lambda shape, k, device, _, limits: measured(shape, k, device, 0.0, limits))
    if name == "objectives":
        true_measure = objectives.measure
        monkeypatch.setattr(objectives, "measure", lambda size, device, _: true_measure(size, device, 0.0))
    threads = torch.get_num_threads()
    said = said_by(name, "--json", "raw.json", "--device", "cpu", "--threads", "1")
    torch.set_num_threads(threads)
    assert (said.code, said.err) == (0, MEASURED[name])
    record = json.loads(Path("raw.json").read_text())
    assert (record["benchmark"], record["environment"]["threads"]) == (name, 1)
    table = {"objectives": objectives, "latch": latch, "scale": scale}[name].table
    assert said.out == table(record) + "\n"
    assert [path.name for path in Path().iterdir()] == ["raw.json"]


@pytest.mark.parametrize("name", ["objectives", "latch", "scale"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--json", "nowhere/raw.json"), "its folder does not exist"),
        (("--json", "."), "is a folder"),
        (("--threads", "0"), "--threads must be at least 1"),
        (("--device", "cuda"), "torch sees no CUDA device"),
        (("--device", "tpu"), "device takes auto, cpu or cuda"),
    ],
)
def test_a_mistake_is_found_before_the_measurement(
    name: str, args: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was measured")

    for module in (objectives, latch):
        monkeypatch.setattr(module, "run", never)
    said = said_by(name, *args)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("command", "example"),
    [("objectives", "vmcr2 bench objectives --device cpu"), ("latch", "vmcr2 bench latch --json")],
)
def test_help_teaches_by_example(command: str, example: str) -> None:
    result = CliRunner().invoke(app, ["bench", command, "--help"], prog_name="PROGRAM", env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert example in result.stdout


def test_an_unknown_row_of_epochs_is_a_mistake_that_names_the_known_ones() -> None:
    said = said_by("epoch", "--device", "cpu", "--data", "cifar100-resnet")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "mnist, cifar10, cifar100, cifar100-preact, tiny-imagenet, got 'cifar100-resnet'" in said.err
