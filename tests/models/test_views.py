"""Features averaged over views of a picture: of one network, in measuring, predicting and exported files alike."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_trainer import quick
from torch import nn

from vmcr2.data import from_arrays, open_data
from vmcr2.models import ViewMean
from vmcr2.runs import Run, RunFolder, UserError, fit, load_run, recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained without mirrored digits: the features of a digit and of its mirror image differ."""
    folder = tmp_path_factory.mktemp("flips") / "run"
    fit(quick("vmcr2", epochs=10, average_flips=True), out=folder)
    return load_run(folder)


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Measured by digits moved by one pixel, and the mirror images of all."""
    folder = tmp_path_factory.mktemp("shifts") / "run"
    own = {"average_flips": True, "average_shifts": 1, "mean": (0.3,), "std": (0.5,)}
    fit(quick("vmcr2", epochs=10, **own), out=folder)
    return load_run(folder)


def test_the_mean_has_unit_length_and_does_not_depend_on_the_side() -> None:
    network = ViewMean(nn.Sequential(nn.Flatten(), nn.Linear(48, 6)), flips=True)
    x = torch.randn(5, 3, 4, 4)
    z = network(x)
    assert torch.allclose(z.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.allclose(z, network(x.flip(3)), atol=1e-6)
    one, two = network.network(x), network.network(x.flip(3))
    assert torch.allclose(z, nn.functional.normalize(one + two, dim=1), atol=1e-5)


def test_a_moved_picture_keeps_its_pixels_and_has_a_black_border() -> None:
    black = (-1.0, -2.0)
    x = torch.randn(3, 2, 5, 6)
    views = list(ViewMean(nn.Identity(), shift=2, black=black).views(x))
    assert len(views) == 9
    seen = []
    for view in views:
        places = []
        for down, right in itertools.product((-2, 0, 2), repeat=2):
            wide = torch.tensor(black).reshape(1, 2, 1, 1).expand(3, 2, 9, 10).clone()
            wide[:, :, 2 + down : 7 + down, 2 + right : 8 + right] = x
            if torch.equal(view, wide[:, :, 2:7, 2:8]):
                places.append((down, right))
        assert len(places) == 1
        seen += places
    assert len(set(seen)) == 9


def test_with_mirroring_every_view_comes_twice() -> None:
    x = torch.randn(2, 1, 4, 4)
    plain = list(ViewMean(nn.Identity(), shift=1).views(x))
    both = list(ViewMean(nn.Identity(), flips=True, shift=1).views(x))
    assert len(both) == 18
    for view, (one, two) in zip(plain, zip(both[::2], both[1::2], strict=True), strict=True):
        assert torch.equal(one, view)
        assert torch.equal(two, view.flip(3))


def test_every_channel_needs_its_black() -> None:
    network = ViewMean(nn.Identity(), shift=1, black=(-1.0,))
    with pytest.raises(ValueError, match=r"^black must have 3 numbers, .*, got 1$"):
        list(network.views(torch.zeros(2, 3, 4, 4)))


def test_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^x must be \(n, channels, height, width\), got \(2, 3\)$"):
        ViewMean(nn.Identity(), flips=True)(torch.zeros(2, 3))


def test_a_picture_is_not_moved_out_of_sight() -> None:
    assert recipe("digits", average_shifts=3).run.average_shifts == 3  # of 8 pixels
    with pytest.raises(UserError, match=r"^average_shifts must be at most 3 with image_size 8, got 4: "):
        recipe("digits", average_shifts=4)
    with pytest.raises(UserError, match=r"^average_shifts must be at most 4 with image_size 9, got 5: "):
        recipe("digits", image_size=9, average_shifts=5)


def test_the_mode_is_that_of_the_network() -> None:
    network = nn.Linear(2, 2)
    assert ViewMean(network).training
    assert not ViewMean(network.eval()).training


def test_a_run_predicts_by_the_mean_of_moved_pictures(shifted: Run) -> None:
    """The border is black as the network sees it: below zero where the mean was taken off."""
    images = open_data("digits").test().images[:50]
    wide = nn.functional.pad(images, (1, 1, 1, 1))  # black as a picture has it
    total = torch.zeros(50, shifted.config.model.dim)
    for down, right in itertools.product((0, 1, 2), repeat=2):
        view = (wide[:, :, down : down + 8, right : right + 8].float() / 255 - 0.3) / 0.5
        with torch.no_grad():
            total += shifted.model(view) + shifted.model(view.flip(3))
    assert torch.allclose(shifted.features(images), nn.functional.normalize(total, dim=1), atol=1e-5)


@pytest.mark.parametrize("kind", ["run", "shifted"])
def test_a_run_is_measured_by_what_it_predicts(kind: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(kind)
    test = open_data("digits").test()
    right = run.predict(test.images, labels=True).cpu() == test.labels
    assert right.double().mean().item() == run.summary["test_accuracy"]


@pytest.mark.parametrize("kind", ["run", "shifted"])
def test_an_exported_file_has_the_mean_too(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run: Run = request.getfixturevalue(kind)
    written = run.export(tmp_path / "model.pt2")
    pixels = open_data("digits").test().images[:6]
    exported = torch.export.load(written.path)
    assert torch.allclose(exported.module()(pixels)[3], run.features(pixels), atol=1e-4)
    layers = sum(isinstance(part, nn.Linear) for part in run.model.modules())
    products = [node for node in exported.graph.nodes if node.target is torch.ops.aten.linear.default]
    assert len(products) == layers > 0, "the network is in the file once, not once for each view"


def test_a_run_predicts_by_the_mean(run: Run) -> None:
    test = open_data("digits").test()
    z, mirrored = run.features(test.images), run.features(test.images.flip(3))
    assert torch.allclose(z, mirrored, atol=1e-5)
    assert not run.model.training
    plain = run.model(test.images.float() / 255)
    assert not torch.allclose(z, plain, atol=1e-2), "the network alone gives other features"


def test_a_recipe_for_pictures_that_is_given_rows_averages_nothing(tmp_path: Path) -> None:
    """The settings cannot act there, so they must not end the run."""
    rows = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    config = quick("ce", epochs=1, average_flips=True, average_shifts=1, batch_size=20)
    run = fit(config, source=from_arrays(rows, np.arange(60) % 2), out=tmp_path / "run")
    assert run.features(rows).shape == (60, config.model.dim)
    assert run.export(tmp_path / "rows.pt2").path.exists()


def test_on_its_way_a_run_is_measured_by_the_picture_alone(tmp_path: Path) -> None:
    """Views would take as long as epochs, at every measurement; the summary is by the views."""
    own: dict[str, Any] = {"epochs": 4, "eval_every": 2, "holdout": 200}
    plain = fit(quick("vmcr2", **own), out=tmp_path / "plain")
    seen = fit(quick("vmcr2", **own, average_flips=True, average_shifts=1), out=tmp_path / "seen")
    for name in ("train_delta_r", "holdout_accuracy"):
        on_the_way = [
            [line[name] for line in RunFolder(run.folder).read_metrics() if name in line] for run in (plain, seen)
        ]
        assert on_the_way[0] == on_the_way[1] != []
    assert plain.summary["train_delta_r"] != seen.summary["train_delta_r"]


@pytest.mark.parametrize("setting", [{"average_flips": True}, {"average_shifts": 2}])
def test_rows_of_a_table_have_no_views(setting: dict[str, Any], tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(40)))
    with pytest.raises(UserError, match=rf"^{next(iter(setting))} .*: leave it out$"):
        recipe("auto", data=str(table), label="label", **setting)
