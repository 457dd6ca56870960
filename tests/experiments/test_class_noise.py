"""The study of the class statistics' noise: its gradients are those of the losses, and its noise is what was put in."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import reference
import torch
from cases import DOUBLE, relative
from seeds import seeded
from torch import Tensor

from experiments import class_noise
from experiments._trained import PAGE
from vmcr2 import VMCR2Loss
from vmcr2.models import MLP
from vmcr2.runs import Config, Run

M, D, K = 60, 12, 4
BETA = 0.2


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    z = torch.randn(M, D, generator=seeded(0), dtype=DOUBLE)
    return torch.nn.functional.normalize(z, dim=1), torch.arange(M) % K


@pytest.fixture
def loss(rows: tuple[Tensor, Tensor]) -> VMCR2Loss:
    made = VMCR2Loss(K, D, atoms_per_class=2, weight=7.0, batch_expansion=BETA, scale=0.3).double()
    made.latch(*rows)
    return made


def test_without_class_moments_only_the_atoms_and_the_rate_are_left(
    loss: VMCR2Loss, rows: tuple[Tensor, Tensor]
) -> None:
    z, labels = rows
    without = class_noise.variational(loss, z, labels, torch.zeros(K, D, D, dtype=DOUBLE))[1]
    leaf = z.clone().requires_grad_()
    energies = [
        row @ loss.dictionary @ torch.diag(loss.codes[:, label]) @ loss.dictionary.T @ row
        for row, label in zip(leaf, labels, strict=True)
    ]
    value = 0.3 * (-2 * 7.0 / M * torch.stack(energies).sum() - BETA * reference.coding_rate(leaf, 0.5))
    value.backward()
    assert leaf.grad is not None
    along = leaf.grad - (leaf.grad * z).sum(1, keepdim=True) * z  # the loss normalises its rows
    of_study = without - (without * z).sum(1, keepdim=True) * z
    assert relative(of_study, along) < 1e-9


def test_moments_are_multiplied_class_by_class(rows: tuple[Tensor, Tensor]) -> None:
    z, labels = rows
    moments = class_noise.moments_of(z, labels, K)
    products = class_noise.moment_products(z, labels, moments)
    for i in (0, 7, 30):
        members = z[labels == labels[i]]
        assert relative(products[i], members.T @ (members @ z[i]) / len(members)) < 1e-12


def test_a_batch_takes_the_place_that_it_had_in_the_memory(rows: tuple[Tensor, Tensor]) -> None:
    """So the memory of the study always holds every row once."""
    z, labels = rows
    loss = class_noise.remembering(z, labels, K, 0.5).double()
    for at in range(0, M, 20):
        class_noise.exact(loss, z[at : at + 20], labels[at : at + 20])
    assert torch.equal(loss.memory_features, z)
    assert torch.equal(loss.memory_labels, labels)


def test_the_noise_is_what_was_put_in() -> None:
    """Noise of variance 4 around a signal of ones: the ratio is 4, with a standard deviation below 0.03."""
    spread = class_noise.Spread()
    for seed in range(20):
        spread.add(1 + 2 * torch.randn(50_000, generator=seeded(seed)))
    assert spread.noise_to_signal() == pytest.approx(4.0, rel=0.05)


def test_pulls_are_those_of_the_steps_taken(loss: VMCR2Loss, rows: tuple[Tensor, Tensor]) -> None:
    z, labels = rows
    before = loss.dictionary.clone()
    still = class_noise.pulls_after(loss, z, labels, [])
    model = loss.dictionary @ torch.diag(loss.codes[:, labels[5]]) @ loss.dictionary.T
    assert relative(still[5], model @ z[5]) < 1e-12
    moved = class_noise.pulls_after(loss, z, labels, [(z[:30], labels[:30])])
    assert relative(moved, still) > 1e-6
    assert torch.equal(loss.dictionary, before), "the run's own dictionary stays"


def small_measurement(batch_size: int) -> dict[str, Any]:
    """Four batches, by a network that is not trained."""
    torch.manual_seed(0)
    labels = torch.arange(4 * batch_size) % K
    images = torch.randint(128, (len(labels), 3, 32, 32)) + torch.randint(128, (K, 3, 32, 32))[labels]
    images = images.to(torch.uint8)
    network = torch.nn.Sequential(torch.nn.Flatten(), MLP(3 * 32 * 32, D, hidden=(16,)))
    loss = VMCR2Loss(K, D, atoms_per_class=2)
    loss.latch(network(images / 255).detach(), labels)
    config = SimpleNamespace(optim=SimpleNamespace(batch_size=batch_size), objective=SimpleNamespace(eps_sq=0.5))
    run = SimpleNamespace(model=network, objective=loss, class_names=range(K), config=config)
    run.summary = {"holdout_accuracy": 0.5}
    return class_noise.measured(cast(Run, run), images, labels, count=4)


def test_what_a_memory_changes() -> None:
    """For V-MCR² the noise of small batches; for exact MCR² the mean too, because R and R_c of one batch are alike.

    Over six seeds the cosines were above 0.999 and 0.960 for V-MCR² and below 0.930 for exact MCR²; the pulls differed
    by at most 0.011 with 300 samples of a class, and by at least 0.038 with 3.
    """
    large, small = small_measurement(300 * K), small_measurement(3 * K)
    for found, least in ((large, 0.998), (small, 0.94)):
        assert found["cosine_of_means"]["mcr2"] < least < found["cosine_of_means"]["vmcr2"]
        own, carried = found["noise_to_signal"]["vmcr2"]
        assert carried < own
    assert large["pulls_differ"] < 0.02 < small["pulls_differ"]
    assert class_noise.shown({"free": large, "flat": small}).count("\n") == 5


def test_the_page_has_the_table_of_the_results() -> None:
    results = json.loads(class_noise.STUDY.results.read_text())["results"]
    assert class_noise.shown(results) in PAGE.read_text()


@pytest.mark.parametrize("config", class_noise.configs(2).values(), ids=class_noise.NAMES)
def test_its_runs_are_trained_without_the_held_out_images(config: Config) -> None:
    assert config.data.holdout == 5000
