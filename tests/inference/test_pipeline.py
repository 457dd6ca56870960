"""The pipeline: one module that answers as the run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_runs import CLASSES, allowed, answers_of, drawn_run, furthest, samples

from vmcr2.data import normalize, plain, resize_matrix
from vmcr2.inference import Pipeline, Plain
from vmcr2.objectives import OBJECTIVES
from vmcr2.runs._exporting import pipeline_of

NETWORKS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("mlp", (1, 8, 8), {"image_size": 8}),
    ("mlp", (7,), {}),
    ("mnist-cnn", (1, 28, 28), {"image_size": 32}),
    ("resnet18", (3, 40, 40), {"image_size": 32, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}),
    ("preact18", (3, 16, 16), {"image_size": 16}),
]


@pytest.mark.parametrize(
    ("shape", "size"),
    [((1, 28, 28), 32), ((3, 5, 4), 8), ((1, 8, 8), 8), ((3, 40, 40), 32), ((2, 33, 50), 16), ((1, 64, 17), 17)],
)
@pytest.mark.parametrize("standardised", [True, False])
def test_pictures_are_as_in_the_run(shape: tuple[int, int, int], size: int, standardised: bool) -> None:
    mean, std = (0.3, 0.5, 0.4)[: shape[0]], (0.2, 0.3, 0.1)[: shape[0]]
    x = samples(shape, 5)
    expected = plain(x, torch.arange(5), size=size)
    if standardised:
        expected = normalize(expected, mean, std)
    found = Plain(shape, size, *((mean, std) if standardised else ()))(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    assert len({*found.flatten().tolist()}) > 10, "the pictures are not all the same"


@pytest.mark.parametrize(("length", "size"), [(40, 32), (9, 9), (100, 7)])
def test_the_matrix_is_a_weighted_mean(length: int, size: int) -> None:
    matrix = resize_matrix(length, size)
    assert matrix.shape == (size, length)
    assert torch.allclose(matrix.sum(1), torch.ones(size))
    assert (matrix >= 0).all()
    assert torch.allclose(matrix, matrix.flip(0, 1), atol=1e-6), "left and right are alike"


@pytest.mark.parametrize(("model", "shape", "settings"), NETWORKS, ids=[f"{n}-{len(s)}d" for n, s, _ in NETWORKS])
@pytest.mark.parametrize("calibrated", [True, False])
def test_every_network_answers_as_its_run(
    tmp_path: Path, model: str, shape: tuple[int, ...], settings: dict[str, Any], calibrated: bool
) -> None:
    run = drawn_run(tmp_path, shape, model=model, calibrated=calibrated, **settings)
    pipeline = pipeline_of(run)
    assert (pipeline.readout.temperature.item() == 1.0) is not calibrated
    for count in (1, 6):
        x = samples(shape, count, seed=count)
        assert furthest(pipeline(x), answers_of(run, x)) < allowed(run)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_answers_as_its_run(tmp_path: Path, objective: str) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), objective=objective, hidden=(16,))
    x = samples((1, 8, 8), 50)
    found = pipeline_of(run)(x)
    assert furthest(found, answers_of(run, x)) < allowed(run)
    assert found[0].tolist() == run.predict(x, labels=True).tolist()
    assert run.readout == ("head" if "ce" in objective else "subspace")


def test_an_added_class_is_an_answer(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), objective="ce", hidden=(16,))
    new = samples((1, 8, 8), 6, seed=9)
    wider = run.add_class("new", new)
    label, probabilities, *_ = pipeline_of(wider)(new)
    assert probabilities.shape == (6, CLASSES + 1)
    assert label.tolist() == wider.predict(new, labels=True).tolist()
    assert CLASSES in label


def test_it_is_a_copy_in_float32_that_does_not_train(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), model="resnet18", image_size=8)
    run.model.double().train()
    pipeline = pipeline_of(run)
    assert not any(part.training for part in pipeline.modules())
    assert all(value.dtype == torch.float32 and not value.requires_grad for value in pipeline.parameters())
    assert all(value.dtype == torch.float64 and value.requires_grad for value in run.model.parameters())
    before = pipeline(samples((1, 8, 8), 2))
    with torch.no_grad():
        for value in run.model.parameters():
            value.zero_()
    assert furthest(pipeline(samples((1, 8, 8), 2)), before) == 0


def test_trials_are_inputs_of_its_kind(tmp_path: Path) -> None:
    pictures: Pipeline = pipeline_of(drawn_run(tmp_path, (3, 40, 24), model="mlp", image_size=24))
    one, five = pictures.trials([1, 5])
    assert (one.shape, five.shape, five.dtype) == ((1, 3, 40, 24), (5, 3, 40, 24), torch.uint8)
    assert five.double().std() > 20, "with contrast"
    rows = pipeline_of(drawn_run(tmp_path, (7,), model="mlp"))
    (three,) = rows.trials([3])
    assert (three.shape, three.dtype, rows.takes) == ((3, 7), torch.float32, "rows")
