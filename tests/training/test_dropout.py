"""Dropout is off for the last part of a run: the objective then sees what is measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from digits_trainer import CPU
from seeds import SEED
from torch import Tensor, nn

from vmcr2.data import open_data
from vmcr2.runs import Trainer, UserError, recipe


def trainer(**settings: Any) -> Trainer:
    """The paper's network for MNIST, which has two dropout layers, on digits."""
    small: dict[str, Any] = {"model": "mnist-cnn", "image_size": 32, "dim": 16, "batch_size": 20, "seed": SEED}
    made = Trainer(recipe("digits", device="cpu", epochs=4, **(small | settings)), open_data("digits"), CPU)
    made.step.index.copy_(torch.arange(20))
    return made


def seen(made: Trainer) -> Tensor:
    return made.step.featurize(made.step.index, made.step.draw).detach()


def measured(made: Trainer) -> Tensor:
    """The same images in evaluation mode; the mode is restored."""
    made.network.eval()
    with torch.no_grad():
        z: Tensor = made.network(made.step.samples.plain_batch(made.step.index))
    made.network.train()
    return z


def test_it_is_off_after_its_part_of_the_run_and_on_again_at_the_end() -> None:
    made = trainer(dropout_until=0.5)
    assert not made.step.begin(0)
    assert not torch.equal(seen(made), seen(made))
    assert not made.step.begin(1)
    assert made.step.begin(2), "a recorded step would go on dropping"
    plain = measured(made)
    assert torch.equal(seen(made), seen(made)), "measuring in between must not switch it on"
    assert torch.allclose(seen(made), plain, atol=1e-5)
    assert not made.step.begin(3)
    made.step.settle()
    assert [part.p for part in made.network.modules() if isinstance(part, nn.Dropout)] == [0.25, 0.5]


@pytest.mark.parametrize(
    ("until", "dropping"), [(0.0, [False] * 4), (0.3, [True, True, False, False]), (1.0, [True] * 4)]
)
def test_epochs_with_dropout(until: float, dropping: list[bool]) -> None:
    made = trainer(dropout_until=until)
    found = []
    for epoch in range(4):
        made.step.begin(epoch)
        found.append(not torch.equal(seen(made), seen(made)))
    assert found == dropping


def test_a_network_without_dropout_has_nothing_to_record_again() -> None:
    config = recipe("digits", device="cpu", epochs=4, hidden=(16,))
    made = Trainer(config, open_data("digits"), CPU)
    assert not any(made.step.begin(epoch) for epoch in range(4))


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_it_is_a_part_of_the_run(value: float) -> None:
    with pytest.raises(UserError, match=r"^dropout_until must be (at least 0|at most 1|finite), got"):
        recipe("digits", model="mnist-cnn", image_size=32, dropout_until=value)


def test_it_acts_with_the_network_that_has_dropout() -> None:
    with pytest.raises(UserError, match=r"^dropout_until acts with model mnist-cnn only, and model is mlp: leave it"):
        recipe("digits", dropout_until=0.5)
