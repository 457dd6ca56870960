"""Features averaged over mirror images: of one network, in measuring, predicting and exported files alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from digits_trainer import quick
from torch import nn

from vmcr2.data import open_data
from vmcr2.models import FlipMean
from vmcr2.runs import Run, UserError, fit, load_run, recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained without mirrored digits: the two features differ."""
    folder = tmp_path_factory.mktemp("flips") / "run"
    fit(quick("vmcr2", epochs=10, average_flips=True), out=folder)
    return load_run(folder)


def test_the_mean_has_unit_length_and_does_not_depend_on_the_side() -> None:
    network = FlipMean(nn.Sequential(nn.Flatten(), nn.Linear(48, 6)))
    x = torch.randn(5, 3, 4, 4)
    z = network(x)
    assert torch.allclose(z.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.allclose(z, network(x.flip(3)), atol=1e-6)
    one, two = network.network(x), network.network(x.flip(3))
    assert torch.allclose(z, nn.functional.normalize(one + two, dim=1), atol=1e-5)


def test_the_mode_is_that_of_the_network() -> None:
    network = nn.Linear(2, 2)
    assert FlipMean(network).training
    assert not FlipMean(network.eval()).training


def test_a_run_predicts_by_the_mean(run: Run) -> None:
    test = open_data("digits").test()
    z, mirrored = run.features(test.images), run.features(test.images.flip(3))
    assert torch.allclose(z, mirrored, atol=1e-5)
    assert not run.model.training
    plain = run.model(test.images.float() / 255)
    assert not torch.allclose(z, plain, atol=1e-2), "the network alone gives other features"


def test_a_run_is_measured_by_what_it_predicts(run: Run) -> None:
    test = open_data("digits").test()
    right = run.predict(test.images, labels=True).cpu() == test.labels
    assert right.double().mean().item() == run.summary["test_accuracy"]


def test_an_exported_file_has_the_mean_too(run: Run, tmp_path: Path) -> None:
    written = run.export(tmp_path / "model.pt2")
    pixels = open_data("digits").test().images[:6]
    features = torch.export.load(written.path).module()(pixels)[3]
    assert torch.allclose(features, run.features(pixels), atol=1e-4)


def test_rows_of_a_table_have_no_mirror_image(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(40)))
    with pytest.raises(UserError, match=r"^average_flips .*: leave it out$"):
        recipe("auto", data=str(table), label="label", average_flips=True)
