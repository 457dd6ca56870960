"""Weight decay: which parameters it acts on, seen in a step whose gradient is zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2.objectives import CESettings
from vmcr2.training import Numerics, OptimSettings, Rows, Step

LR, DECAY = 0.5, 0.1


def step(**optim: Any) -> Step:
    torch.manual_seed(SEED)
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 36, 6), nn.BatchNorm1d(6)
    )
    labels = torch.arange(20) % 5
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)  # a bias of 0 would not show its decay
    objective = CESettings().build(5, 6, labels, 10)
    with torch.no_grad():
        for parameter in objective.module.parameters():
            parameter.add_(1.0)
    return Step(
        network,
        objective,
        Rows(torch.rand(20, 1, 8, 8), labels),
        OptimSettings(**{"lr": LR, "weight_decay": DECAY, "momentum": 0.9} | optim),
        batch_size=10,
        dim=6,
        seed=0,
        numerics=Numerics(torch.device("cpu")),
    )


def shrunk(made: Step) -> list[bool]:
    """Which parameters a step with no gradient multiplies by 1 − lr·decay. The others stay as they are."""
    before = [parameter.detach().clone() for parameter in made.parameters]
    for parameter in made.parameters:
        parameter.grad = torch.zeros_like(parameter)
    made.optimizer.step()
    found = []
    for old, new in zip(before, made.parameters, strict=True):
        factor = 1 - LR * DECAY if not torch.equal(old, new) else 1.0
        assert torch.allclose(new, factor * old, rtol=1e-5)
        found.append(factor != 1.0)
    return found


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weights_of_layers_decay_and_vectors_only_if_told(optimizer: str) -> None:
    made = step(optimizer=optimizer)
    vectors = [parameter.ndim == 1 for parameter in made.parameters]
    assert sum(vectors) == 7  # two biases and the head's, and two of each BatchNorm
    assert shrunk(made) == [not vector for vector in vectors]
    assert all(shrunk(step(optimizer=optimizer, decay_all=True)))
    assert not any(shrunk(step(optimizer=optimizer, decay_all=True, weight_decay=0.0)))


@pytest.mark.parametrize("decay_all", [True, False])
def test_every_parameter_is_in_one_group(decay_all: bool) -> None:
    made = step(decay_all=decay_all)
    grouped: list[Tensor] = [own for group in made.optimizer.param_groups for own in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, made.parameters))
    assert {group["lr"] for group in made.optimizer.param_groups} == {made.rate}  # one rate, which the schedule sets


def test_a_network_of_weights_alone_has_one_group() -> None:
    made = step()
    other = Step(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 6, bias=False)),
        CESettings().build(5, 6, torch.arange(20) % 5, 10),
        made.samples,
        OptimSettings(),
        batch_size=10,
        dim=6,
        seed=0,
        numerics=Numerics(torch.device("cpu")),
    )
    assert [len(group["params"]) for group in other.optimizer.param_groups] == [2, 1]  # the head has a bias
