"""Thousands of classes, on a small scale: the data, the batches, and that every part of the study runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from experiments import many_classes, tight_frame
from experiments.many_classes import INPUTS, NUISANCE, RESULTS, Plan, batches, docs_row, make_data, study

CPU = torch.device("cpu")


def test_the_data_are_what_they_say() -> None:
    """32 directions hold ten parts of eleven of the variance, and test samples do not depend on what is set aside."""
    train, test = make_data(30, CPU)
    assert train.x.shape == (30 * 40, INPUTS)
    assert torch.equal(test.labels.bincount(), torch.full((30,), 10))
    spectrum = torch.linalg.eigvalsh(train.x.T.cov()).flip(0)
    assert (spectrum[:NUISANCE].sum() / spectrum.sum()).item() == pytest.approx(10 / 11, abs=0.03)
    fewer, aside = make_data(30, CPU, held_out=True)
    assert (fewer.per_class, aside.per_class) == (34, 6)
    rows = train.x.view(30, 40, INPUTS)
    assert torch.equal(fewer.x.view(30, 34, INPUTS), rows[:, :34])
    assert torch.equal(aside.x.view(30, 6, INPUTS), rows[:, 34:])


def test_a_batch_has_so_many_samples_of_each_of_its_classes() -> None:
    plan = Plan(200)
    train, _ = make_data(200, CPU)
    drawn = list(batches(plan, train, torch.Generator().manual_seed(0)))
    assert len(drawn) == 5 * (200 // plan.classes_per_batch)
    for rows in drawn:
        counts = train.labels[rows].bincount()
        assert set(counts[counts > 0].tolist()) == {8}
        assert int((counts > 0).sum()) == plan.classes_per_batch == 64
    assert len(torch.cat(drawn).unique()) == sum(map(len, drawn))  # no sample twice


def test_a_small_study(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(64, epochs=2, dim=32, hidden=(48,))
    found = study(plan, CPU, held_out=True)
    assert 0 <= found["raw_nearest_subspace"] < 0.2
    assert [own["objective"] for own in found["objectives"]] == ["vmcr2", "ce"]
    assert set(found["objectives"][1]) == {"objective", "seconds", "nearest_subspace", "head"}
    assert "nearest subspace on the raw inputs" in capsys.readouterr().out


def test_the_docs_say_what_the_results_say() -> None:
    runs = json.loads((RESULTS / many_classes.FILE).read_text())
    page = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()
    for classes, run in runs.items():
        assert docs_row(int(classes), run) in page


def test_classes_become_a_tight_frame() -> None:
    before, after = tight_frame.trained(steps=150)
    assert after.eigenvalues.std() < 0.5 * before.eigenvalues.std()
    assert tight_frame.WELCH - 1e-3 < after.cosines.square().mean().sqrt() < before.cosines.square().mean().sqrt()
