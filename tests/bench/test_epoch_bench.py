"""Epochs are those of the trainer, on as many images as were asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vmcr2.bench import epoch as bench

ROOT = Path(__file__).resolve().parents[2]


def test_random_images_have_the_shape_of_the_data_set() -> None:
    source = bench.source_of("tiny-imagenet", 450)
    split = source.train()
    assert split.images.shape == (450, 3, 32, 32)
    assert split.images.dtype == torch.uint8
    assert torch.bincount(split.labels).tolist() == [3] * 50 + [2] * 150
    assert source.num_classes == 200


def test_every_objective_is_measured_by_whole_epochs() -> None:
    said: list[str] = []
    record = bench.run(torch.device("cpu"), images=40, epochs=2, say=said.append)
    rows = record["results"]
    assert [text.split(",")[0] for text in said] == ["mnist"] * len(rows), "the smallest unless said, on a CPU"
    assert said[0] == "mnist, CE: 40 images an epoch"
    assert [row["contender"] for row in rows] == [contender.title for contender in bench.CONTENDERS]
    for row in rows:
        assert row["images"] == 40
        assert row["epochs"] == 2
        assert 0 < row["fastest"] <= row["seconds_per_epoch"] <= row["slowest"]
        assert row["milliseconds_per_step"] == pytest.approx(1e3 * row["seconds_per_epoch"])
        assert not row["captured"]
        assert row["notes"] == []
    lines = bench.table(record).splitlines()
    assert len(lines) == 4 + len(rows)
    assert f"| {rows[0]['seconds_per_epoch']:.4f} (" in lines[4]
    assert "| 1.00 |" in lines[4]


def test_a_contender_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bench.measure

    def measure(config, *args, **kwargs):  # type: ignore[no-untyped-def]
        if config.objective.name == "mcr2":
            raise torch.OutOfMemoryError("no room\nat all")
        return whole(config, *args, **kwargs)

    monkeypatch.setattr(bench, "measure", measure)
    record = bench.run(torch.device("cpu"), data=("mnist",), images=20, epochs=1)
    assert [("failed" in row) for row in record["results"]] == [False, True, True, False, False]
    assert "no room" in bench.table(record)
    assert "at all" not in bench.table(record)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("epoch-*.json")), ids=lambda p: p.stem)
def test_the_page_holds_what_was_measured(path: Path) -> None:
    assert bench.table(json.loads(path.read_text())) in (ROOT / "benchmarks/README.md").read_text()
