"""The learning rate along a run."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from vmcr2.training import OptimSettings
from vmcr2.training._schedule import learning_rate


def rates(steps_per_epoch: int, **settings: Any) -> list[float]:
    optim = OptimSettings(**settings)
    return [learning_rate(optim, step, steps_per_epoch) for step in range(optim.epochs * steps_per_epoch)]


def test_constant_is_constant() -> None:
    assert rates(5, schedule="constant", lr=0.3, epochs=4) == [0.3] * 20


def test_step_divides_by_ten_at_the_half_and_at_three_quarters() -> None:
    found = rates(25, schedule="step", lr=0.1, epochs=8)
    assert found == pytest.approx([0.1] * 100 + [0.01] * 50 + [0.001] * 50, rel=1e-12)


def test_step_of_the_papers_2000_epochs() -> None:
    """«10⁻¹ for the first half of training epochs, divide it by 10 for the next quarter, and again»."""
    optim = OptimSettings(schedule="step", lr=0.1, epochs=2000)
    at = {epoch: learning_rate(optim, epoch * 25, 25) for epoch in (0, 999, 1000, 1499, 1500, 1999)}
    assert at == pytest.approx({0: 0.1, 999: 0.1, 1000: 0.01, 1499: 0.01, 1500: 0.001, 1999: 0.001})
    assert learning_rate(optim, 1000 * 25 - 1, 25) == pytest.approx(0.1)  # not a step before


def test_own_milestones_and_none() -> None:
    found = rates(1, schedule="step", lr=1.0, epochs=8, milestones=(0.25, 0.5, 0.75))
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert rates(1, schedule="step", lr=1.0, epochs=3, milestones=()) == [1.0] * 3


def test_cosine_is_half_a_wave_from_lr_to_nothing() -> None:
    found = rates(10, schedule="cosine", lr=0.4, epochs=20)
    assert found[0] == 0.4
    assert found[100] == pytest.approx(0.2)
    assert found == pytest.approx([0.2 * (1 + math.cos(math.pi * i / 200)) for i in range(200)])
    assert all(later < earlier for earlier, later in itertools.pairwise(found))
    assert 0 <= found[-1] < 0.4 * 1e-4


def test_linear_is_a_straight_line_from_lr_to_nothing() -> None:
    assert rates(2, schedule="linear", lr=0.5, epochs=4) == [0.5 * (1 - i / 8) for i in range(8)]


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine", "linear"])
def test_warm_up_rises_in_a_straight_line_to_lr(schedule: str) -> None:
    found = rates(10, schedule=schedule, lr=0.5, epochs=10, warmup_epochs=2)
    rise = [later - earlier for earlier, later in itertools.pairwise(found[:21])]
    assert rise == pytest.approx([rise[0]] * 20)
    assert 0 < found[0] == pytest.approx(rise[0])  # begins one stride above 0: no step is wasted
    assert found[20] == pytest.approx(0.5)
    assert max(found) == pytest.approx(0.5)


def test_the_cosine_after_a_warm_up_spans_what_is_left() -> None:
    found = rates(10, schedule="cosine", lr=0.5, epochs=10, warmup_epochs=2)
    assert found[60] == pytest.approx(0.25)  # the middle of steps 20 to 100
    assert found[-1] < 0.5 * 1e-3


def test_warm_up_of_a_part_of_an_epoch() -> None:
    found = rates(5, schedule="constant", lr=1.0, epochs=2, warmup_epochs=0.5)
    assert found[0] < found[1] < found[2] < 1.0
    assert found[3:] == [1.0] * 7


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine", "linear"])
def test_never_negative_never_above_lr(schedule: str) -> None:
    sizes, warmups = [(1, 1), (1, 7), (4, 1), (4, 13)], [0.0, 0.3, 1.0, 2.5, 4.0, 9.0]
    for (epochs, steps), warmup in itertools.product(sizes, warmups):
        found = rates(steps, schedule=schedule, lr=0.7, epochs=epochs, warmup_epochs=warmup)
        assert all(math.isfinite(rate) and 0 <= rate <= 0.7 * (1 + 1e-12) for rate in found), (epochs, steps, warmup)
        assert found[0] > 0
