"""Epochs are those of the trainer, on as many images as were asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.bench import _epochs, _first_step as first_step, _images, _real_run as real_run, epoch as bench
from vmcr2.data import DATASETS
from vmcr2.runs import Trainer, recipe

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


def test_random_images_have_the_shape_of_the_data_set() -> None:
    source = _images.random_source("tiny-imagenet", 450)
    split = source.train()
    assert split.images.shape == (450, 3, 32, 32)
    assert split.images.dtype == torch.uint8
    assert torch.bincount(split.labels).tolist() == [3] * 50 + [2] * 150
    assert source.num_classes == 200
    whole = _images.random_source("tiny-imagenet", 450, largest=None)
    assert (whole.train().images.shape, whole.test().images.shape) == ((450, 3, 64, 64), (45, 3, 64, 64))
    assert whole.train_checksum == _images.random_source("tiny-imagenet", 450, largest=None).train_checksum
    assert whole.train_checksum != source.train_checksum


@pytest.mark.parametrize("name", ["mnist", "cifar100"])
def test_an_epoch_has_all_images_of_the_data_set(name: str) -> None:
    """Recipes set samples aside for calibration. The bench must not: its epochs are the paper's."""
    trainer = Trainer(bench.configuration(name, _epochs.CE, CPU), _images.random_source(name), CPU)
    assert trainer.steps_per_epoch * trainer.batch_size == DATASETS[name].train_size


@pytest.mark.parametrize(("name", "contender"), [(n, c) for n, all_ in bench.ROWS.items() for c in all_])
def test_every_row_is_a_recipe_that_trains_on_all_images(name: str, contender: _epochs.Contender) -> None:
    config = bench.configuration(name, contender, CPU)
    flat = config.acting()
    assert (flat["objective"], flat["calibration_share"], flat["holdout"]) == (contender.objective, 0.0, 0)
    assert flat["model"] == {"mnist": "mnist-cnn", "cifar100-preact": "preact18"}.get(name, "resnet18")
    assert {key: flat[key] for key in contender.changes} == contender.changes
    plain = bench.configuration(name, _epochs.CE, CPU)
    assert (flat["batch_size"], flat["dim"]) == (plain.optim.batch_size, plain.model.dim), "otherwise no ratio is fair"


def test_every_objective_is_measured_by_whole_epochs() -> None:
    said: list[str] = []
    record = bench.run(CPU, images=200, epochs=2, say=said.append)
    rows = record["results"]
    assert [text.split(",")[0] for text in said] == ["mnist"] * len(rows), "the smallest unless said, on a CPU"
    assert said[0] == "mnist, CE: 200 images an epoch"
    assert [row["contender"] for row in rows] == [contender.title for contender in bench.CONTENDERS]
    for row in rows:
        assert row["images"] == 200, "of 200, twenty would be set aside"
        assert row["epochs"] == 2
        assert 0 < row["fastest"] <= row["seconds_per_epoch"] <= row["slowest"]
        assert row["milliseconds_per_step"] == pytest.approx(1e3 * row["seconds_per_epoch"])
        assert not row["captured"]
        assert row["notes"] == []
    lines = bench.table(record).splitlines()
    assert len(lines) == 4 + len(rows)
    assert f"| {rows[0]['seconds_per_epoch']:.4f} (" in lines[4]
    assert "| 1.00 |" in lines[4]


def test_preact_resnets_are_measured_too() -> None:
    record = bench.run(CPU, data=("cifar100-preact",), images=4, epochs=1)
    assert [(row["data"], row["contender"]) for row in record["results"]] == [
        ("cifar100-preact", "CE"),
        ("cifar100-preact", "V-MCR² with R(z)"),
    ]
    assert all(row["seconds_per_epoch"] > 0 for row in record["results"])


def test_a_contender_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bench.measure

    def measure(config, *args, **kwargs):  # type: ignore[no-untyped-def]
        if config.objective.name == "mcr2":
            raise torch.OutOfMemoryError("no room\nat all")
        return whole(config, *args, **kwargs)

    monkeypatch.setattr(bench, "measure", measure)
    record = bench.run(CPU, data=("mnist",), images=20, epochs=1)
    assert [("failed" in row) for row in record["results"]] == [False, True, True, False, False]
    assert "no room" in bench.table(record)
    assert "at all" not in bench.table(record)


def test_without_cross_entropy_there_is_no_ratio() -> None:
    rows = [
        {"data": "mnist", "contender": "CE", "compiled": False, "failed": "no room"},
        {"data": "mnist", "contender": "V-MCR², Eq. 7", "compiled": False, **FIGURES},
    ]
    (line,) = [line for line in bench._table_of_rows(rows).splitlines() if "Eq. 7" in line]
    assert line == "| mnist | V-MCR², Eq. 7 | 40 | 0.5000 (0.4000–0.6000) | – | 500.00 | 2.0 | 300 |"


FIGURES = {
    **{"seconds_per_epoch": 0.5, "fastest": 0.4, "slowest": 0.6, "epochs": 5, "images": 40},
    **{"milliseconds_per_step": 500.0, "seconds_to_first_step": 2.0, "captured": True, "notes": [], "peak_mib": 300.2},
}


def test_steps_end_with_the_first_replayed_one() -> None:
    """Captured after three steps, of epochs with one step each: the fourth call of the engine is the last."""

    class Engine:
        calls, captures, captured = 0, True, False

        def __call__(self) -> None:
            self.calls += 1
            self.captured = self.calls > 3

    trainer = Trainer(recipe("digits", objective="ce", device="cpu"), _images.random_source("digits", 40), CPU)
    loop = trainer.loop(1, say=pytest.fail)
    engine: Any = Engine()
    loop.engine = engine
    _epochs.until_replayed(loop)
    assert engine.calls == 4


def test_the_first_step_of_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_step, "CONTENDERS", first_step.CONTENDERS[1:])
    said: list[str] = []
    (row,) = first_step.run(CPU, images=4, say=said.append)
    assert said == ["cifar100, V-MCR² with R(z): two new processes to their first replayed step"]
    assert row.keys() >= {"data", "contender", "seconds", "seconds_on_a_new_machine", "captured", "peak_mib"}, row
    assert min(row["seconds"], row["seconds_on_a_new_machine"]) > 0.01, "more than importing nothing"
    assert not row["captured"]
    assert recipe("cifar100", objective="vmcr2").flat()["batch_expansion"] > 0, "it is called «with R(z)»"


def test_a_new_process_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_step, "_PROCESS", "raise SystemExit('no room')")
    (row, _) = first_step.run(CPU, images=4)
    assert row["failed"] == "the new process failed: no room"
    assert "| cifar100 | CE | the new process failed: no room | – | – |" in bench._table_of_first_steps([row])


def test_a_real_run_is_compared_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_run, "CONTENDERS", real_run.CONTENDERS[:1])
    rows = [{"data": "tiny-imagenet", "contender": "CE", "images": 400, "seconds_per_epoch": 0.1}]
    (result,) = real_run.run(CPU, rows, images=400, epochs=3)
    assert (result["epochs"], result["train_images"]) == (2, 400), "without the first epoch, over all images"
    assert 0 < result["slowest"] <= result["images_per_second"] <= result["fastest"]
    assert result["bench_images_per_second"] == pytest.approx(4000)
    assert result["ratio"] == pytest.approx(result["images_per_second"] / 4000)
    assert f"| 4,000 | {result['ratio']:.2f} | – |" in bench._table_of_runs([result])
    assert recipe("tiny-imagenet", objective="vmcr2").flat()["batch_expansion"] > 0, "it is called «with R(z)»"


def test_a_run_without_a_row_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"images_per_second": 2e5, "slowest": 1e5, "fastest": 3e5, "peak_mib": 5000.0}
    monkeypatch.setattr(real_run, "measure", lambda *_: dict(speeds))
    results = real_run.run(CPU, [], images=4)
    assert [result["contender"] for result in results] == ["CE", "V-MCR² with R(z)"]
    assert all("ratio" not in result for result in results)
    assert "| tiny-imagenet | CE | 200,000 (100,000–300,000) | – | – | 5000 |" in bench._table_of_runs(results)


def test_the_sections_belong_to_a_gpu_and_to_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(first_step, "run", lambda device, **_: asked.append("first step") or [])
    monkeypatch.setattr(real_run, "run", lambda device, rows, **_: asked.append("real run") or [])
    monkeypatch.setattr(bench, "_rows", lambda name, *_: [])
    monkeypatch.setattr(bench, "environment", lambda device: {})
    gpu = torch.device("cuda")
    record = bench.run(gpu)
    assert asked == ["first step", "real run"]
    assert record.keys() >= {"first_step", "real_run"}
    for device, data in ((CPU, bench.DATA), (gpu, ("mnist", "cifar10", "cifar100-preact"))):
        assert bench.run(device, data=data).keys() == {"benchmark", "environment", "results"}
    assert len(asked) == 2


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("epoch-*.json")), ids=lambda p: p.stem)
def test_the_page_holds_what_was_measured(path: Path) -> None:
    assert bench.table(json.loads(path.read_text())) in (ROOT / "benchmarks/README.md").read_text()
