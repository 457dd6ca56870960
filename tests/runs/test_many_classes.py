"""A run with 5,000 classes: it trains, is measured, reported and used without any table of pairs of classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import in_process
from recording import LargestStorage
from seeds import SEED

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import Source, from_arrays
from vmcr2.report import page, read_run
from vmcr2.runs import Config, Run, _measure, fit, load_run

MANY = 5_000
PAGE_BYTES = 3_000_000
"""The most that a page of one run has, with any number of classes."""
OBJECTIVES: dict[str, dict[str, Any]] = {
    "block": {"objective": "vmcr2", "block": True, "atoms_per_class": 1, "lr": 0.03},
    "ce": {"objective": "ce", "lr": 0.3},
}


def samples(classes: int, each: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows around a direction of 16 for every class."""
    centres = torch.randn(classes, 16, generator=torch.Generator().manual_seed(77))
    labels = torch.arange(each * classes) % classes
    noise = torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(SEED + seed))
    return (centres[labels] + 0.1 * noise).numpy(), labels.numpy()


def source_of(classes: int) -> Source:
    names = [f"kind {label}" for label in range(classes)]
    return from_arrays(*samples(classes, 4, 0), test=samples(classes, 1, 1), class_names=names, title="many")


def trained(classes: int, out: Path, *, objective: str = "block") -> Run:
    config = Config().replace(
        **{"data": "rows", "model": "mlp", "hidden": (16,), "dim": 16, "epochs": 1, "device": "cpu", "seed": SEED},
        **{"batch_size": 1000, "samples_per_class": 4, "calibration_share": 0.01, **OBJECTIVES[objective]},
    )
    return fit(config, source=source_of(classes), out=out)


def total_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture(autouse=True)
def _fewer_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_measure, "_COSINE_SAMPLE", 1000)  # they take as long for ten classes


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_of_many_classes(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with LargestStorage() as storage:
        run = trained(MANY, tmp_path / "run", objective=objective)
    assert storage.largest < MANY**2, "nothing has a number for every pair of classes"
    assert run.summary["test_accuracy"] > 0.9  # the rows are easy: 0.96 and more over ten seeds
    text = page([read_run(run.folder)])
    assert len(text.encode()) < PAGE_BYTES
    assert text.count("kind ") < 2000, "200 classes are named, a few times each"
    assert "Of 200 of the 5,000 classes, evenly spaced by number." in text
    assert "Least often right" in text
    rows, labels = samples(MANY, 1, 2)
    loaded = load_run(run.folder, device="cpu")
    with LargestStorage() as storage:
        top = loaded.top_answers(rows[:3500], 3)
        loaded.predict(rows[:3500], refuse=0.1)
    assert storage.largest <= 2**24 < 3500 * MANY
    by_subspace = loaded.classifier.predict_top(loaded.features(rows[:3500]), 3)
    assert (by_subspace.labels[:, 0] == torch.from_numpy(labels[:3500])).double().mean() > 0.9
    if loaded.readout == "subspace":
        assert torch.equal(top.labels[:, 0], by_subspace.labels[:, 0])
    np.save("new.npy", rows[:10])
    said = in_process("predict", "run", "new.npy", "--top", "4", "-o", "out.jsonl")
    assert said.code == 0, said.err
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    titles = ("class", "second", "choice_3", "choice_4")
    assert [first[title] for title in titles] == loaded.predict(rows[:1], top=4)[0]


def test_a_run_folder_is_linear_in_the_classes(tmp_path: Path) -> None:
    sizes = [total_bytes(trained(classes, tmp_path / str(classes)).folder) for classes in (1000, 2000, 4000)]
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second < 2.2 * first, "twice as many classes add twice as much"


def test_figures_of_a_hundred_thousand_classes() -> None:
    """By the functions that an evaluation calls: no number for every sample and class, none for pairs of classes."""
    classes, dim = 100_000, 6
    z = torch.nn.functional.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(SEED)), dim=1)
    labels = torch.arange(classes)
    side = _measure.TrainingSide(z, labels, NearestSubspace(classes, 1).fit(z, labels), {})
    with LargestStorage() as storage:
        mean = _measure.nearest_class_mean(side, z[:400], classes)
        neighbours = _measure.nearest_neighbours(side, z[:400], classes, count=1)
        overlap = _measure.mean_overlap(side.classifier.bases)
        ranks = _measure.effective_ranks(z, labels, classes)
    assert storage.largest <= 2**25 < 400 * classes
    assert torch.equal(mean, labels[:400])
    assert torch.equal(neighbours, labels[:400])
    assert overlap == pytest.approx(1 / dim, rel=0.05)  # of random directions
    assert torch.allclose(ranks, torch.ones(classes))


def test_overlap_of_many_subspaces_is_that_of_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    bases = torch.linalg.qr(torch.randn(60, 10, 3, generator=torch.Generator().manual_seed(SEED))).Q
    bases[::4, :, 2:] = 0  # other ranks
    bases[1::8, :, 1:] = 0
    bases[7] = 0  # a class without samples
    expected = _measure.mean_overlap(bases)
    monkeypatch.setattr(_measure, "_PAIRED_CLASSES", 10)
    monkeypatch.setattr(_measure, "_GRAM_FLOATS", 100)
    assert _measure.mean_overlap(bases) == pytest.approx(expected, rel=1e-5)
    assert 0.1 < expected < 0.5
