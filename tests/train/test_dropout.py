"""Dropout rests for the last part of a run: the objective then sees what is measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vmcr2.data import open_data
from vmcr2.train import UserError, recipe
from vmcr2.train._evaluate import embed
from vmcr2.train._loop import Trainer

CPU = torch.device("cpu")


def trainer(**settings: Any) -> Trainer:
    """The paper's network for MNIST, which has two dropout layers, on digits."""
    small: dict[str, Any] = {
        "model": "mnist-cnn",
        "image_size": 32,
        "dim": 16,
        "batch_size": 20,
        "augmentation": "none",
    }
    config = recipe("digits", device="cpu", epochs=4, **(small | settings))
    made = Trainer(config, open_data("digits"), CPU)
    made.step.index.copy_(torch.arange(20))
    return made


def seen(made: Trainer) -> Tensor:
    return made.step.featurize(made.step.images, made.step.index, made.step.draw).detach()


def test_it_rests_after_its_part_of_the_run_and_comes_back_at_the_end() -> None:
    made = trainer(dropout_until=0.5)
    assert not made.step.begin(0)
    assert not torch.equal(seen(made), seen(made))
    assert not made.step.begin(1)
    assert made.step.begin(2), "a recorded step would go on dropping"
    measured = embed(made.config, made.network, made.train_split.images, CPU)[:20]
    assert torch.equal(seen(made), seen(made)), "measuring in between must not wake it"
    assert torch.allclose(seen(made), measured, atol=1e-6)
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


def test_a_network_without_dropout_has_nothing_to_record_anew() -> None:
    made = trainer(model="mlp", image_size=8, dropout_until=0.5)
    assert not any(made.step.begin(epoch) for epoch in range(4))


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_it_is_a_part_of_the_run(value: float) -> None:
    with pytest.raises(UserError, match="dropout_until must be in"):
        recipe("digits", dropout_until=value)
