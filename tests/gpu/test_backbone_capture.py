"""The backbone's own rate, and a frozen backbone, in captured steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from digits_trainer import feed
from gpu_training import engine_of, trainer
from torch import Tensor

from vmcr2.runs import Trainer
from vmcr2.training._engine import WARM_UP

pytestmark = pytest.mark.gpu


def resnet(**changes: Any) -> Trainer:
    settings: dict[str, Any] = {"model": "resnet18", "image_size": 32, "augmentation": "none", "batch_size": 100}
    return trainer("vmcr2", **settings | changes)


def moved(made: Trainer, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in made.network.state_dict().items() if not torch.equal(value, before[name])}


def snapshot(made: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in made.network.state_dict().items()}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_frozen_backbone_stays_as_it_is(precision: str) -> None:
    made = resnet(backbone_rate=0.0, precision=precision)
    engine = engine_of(made, say=pytest.fail)
    before = snapshot(made)
    for draw in range(WARM_UP + 3):
        feed(made, draw)
        made.step.rate.fill_(0.1)
        engine()
    assert engine.captured
    assert moved(made, before) == {name for name in before if name.startswith("head.")}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_backbone_s_rate_acts_on_a_replayed_step(precision: str) -> None:
    made = resnet(backbone_rate=0.5, momentum=0.0, nesterov=False, precision=precision)
    engine = engine_of(made, say=pytest.fail)
    for draw in range(WARM_UP + 1):
        feed(made, draw)
        made.step.rate.fill_(0.1)
        engine()
    assert engine.captured
    (rate,) = {group["lr"] for group in made.step.optimizer.param_groups if group.get("backbone")}
    for whole in (0.08, 0.02):
        made.step.rate.fill_(whole)
        engine()
        assert rate.item() == pytest.approx(0.5 * whole)
    before = [parameter.clone() for parameter in made.network.parameters()]
    made.step.rate.fill_(0.0)
    engine()
    assert all(torch.equal(old, new) for old, new in zip(before, made.network.parameters(), strict=True))
