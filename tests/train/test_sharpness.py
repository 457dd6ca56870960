"""Sharpness-aware steps: the gradient from uphill, everything else from where the weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from digits_training import prepared, weights_of
from torch import Tensor, nn

from vmcr2.losses import VMCR2Loss
from vmcr2.train import UserError, fit, recipe
from vmcr2.train._loop import Trainer

RADIUS = 0.3


def trainer(objective: str, **changes: Any) -> Trainer:
    """On digits, before its first step; plain SGD."""
    plain = {"epochs": 4, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "lr": 0.1}
    made = prepared(objective, **plain | changes)
    made.step.index.copy_(torch.arange(made.batch_size))
    return made


def moved(made: Trainer, steps: list[Tensor]) -> None:
    with torch.no_grad():
        for weight, step in zip([*made.network.parameters(), *made.objective.parameters()], steps, strict=True):
            weight.add_(step)


def change_of(made: Trainer) -> list[Tensor]:
    """What a step does to the weights."""
    before = weights_of(made)
    made.step()
    return [now - own for now, own in zip(weights_of(made), before, strict=True)]


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_the_step_is_the_one_that_a_plain_run_makes_uphill(objective: str) -> None:
    """By two plain trainers: one says where up is (−its step), the other makes its step from there."""
    down = change_of(trainer(objective))
    length = torch.stack([step.norm() for step in down]).norm()
    above = trainer(objective)
    moved(above, [-RADIUS * step / length for step in down])
    wanted = change_of(above)
    sharp = trainer(objective, sharpness=RADIUS)
    for ours, theirs, plain in zip(change_of(sharp), wanted, down, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-5)
        assert plain.norm() == 0 or (theirs - plain).norm() > 1e-3 * plain.norm()
    if isinstance(sharp.objective, VMCR2Loss) and isinstance(above.objective, VMCR2Loss):
        torch.testing.assert_close(sharp.objective.dictionary, above.objective.dictionary, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(sharp.objective.codes, above.objective.codes, rtol=1e-3, atol=1e-5)


def test_batch_norm_keeps_the_statistics_of_the_weights_themselves() -> None:
    plain, sharp = trainer("vmcr2"), trainer("vmcr2", sharpness=RADIUS)
    plain.step()
    sharp.step()
    norms = [[part for part in made.network.modules() if isinstance(part, nn.BatchNorm1d)] for made in (plain, sharp)]
    assert norms[0]
    for a, b in zip(*norms, strict=True):
        assert a.running_mean is not None
        assert b.running_mean is not None
        torch.testing.assert_close(b.running_mean, a.running_mean)
        torch.testing.assert_close(b.running_var, a.running_var)
        assert b.momentum == a.momentum == 0.1


def test_exact_mcr2_remembers_a_batch_once() -> None:
    made = trainer("mcr2", batch_size=100, memory=300)
    sharp = trainer("mcr2", batch_size=100, memory=300, sharpness=RADIUS)
    for _ in range(2):
        made.step()
        sharp.step()
    assert torch.equal(sharp.objective.memory_labels, made.objective.memory_labels)  # type: ignore[union-attr]
    assert (sharp.objective.memory_labels >= 0).sum() == 200  # type: ignore[union-attr,operator]


def test_a_gradient_of_nothing_moves_nothing() -> None:
    """No NaN from dividing by a length of 0, and no leap where squares underflow."""
    made = trainer("vmcr2", sharpness=5.0)
    assert made.step.sharpness is not None
    before = weights_of(made)
    for size in (0.0, 1e-25):
        for weight in made.network.parameters():
            weight.grad = torch.full_like(weight, size)
        with made.step.sharpness.uphill():
            for now, own in zip(weights_of(made), before, strict=True):
                torch.testing.assert_close(now, own)


@pytest.mark.parametrize("in_pass", [0, 1])
def test_what_breaks_in_either_pass_is_noticed(in_pass: int) -> None:
    made = trainer("vmcr2", sharpness=RADIUS)
    passes = iter(range(2))
    real = made.step.featurize

    def sometimes(*what: Tensor) -> Tensor:
        z = real(*what)
        return z * torch.nan if next(passes) == in_pass else z

    made.step.forward = sometimes
    made.step()
    assert made.step.broken


def test_a_fault_of_the_first_pass_stays() -> None:
    made = trainer("vmcr2", sharpness=RADIUS)
    assert made.step.sharpness is not None
    with made.step.sharpness.ahead():
        made.objective.fault.fill_(True)  # type: ignore[union-attr,operator]
    assert made.objective.fault  # type: ignore[union-attr]


def test_the_log_has_the_features_of_the_weights_themselves() -> None:
    plain, sharp = trainer("vmcr2"), trainer("vmcr2", sharpness=RADIUS)
    plain.step()
    sharp.step()
    torch.testing.assert_close(sharp.step.features, plain.step.features)


def test_an_error_uphill_leaves_the_weights_where_they_were() -> None:
    made = trainer("ce", sharpness=RADIUS)
    made.step()
    before = weights_of(made)
    passes = iter([made.step.featurize])  # the first pass; there is none for the second
    made.step.forward = lambda *what: next(passes)(*what)
    with pytest.raises(StopIteration):
        made.step()
    assert all(torch.equal(a, b) for a, b in zip(weights_of(made), before, strict=True))


def test_it_learns(tmp_path: Path) -> None:
    config = recipe("digits", device="cpu", epochs=6, holdout=287, sharpness=0.05)
    assert fit(config, out=tmp_path / "run").summary["holdout_accuracy"] > 0.9


def test_a_radius_below_0_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="sharpness must be at least 0"):
        recipe("digits", sharpness=-0.1)
