"""Collapsed, stalled or neither: one judgement for losses, runs and estimators."""

from __future__ import annotations

import pytest
import torch
from seeds import seeded
from torch import Tensor

from vmcr2.functional import diagnose, maximal_rate_reduction, normalize_rows, rate_reduction
from vmcr2.functional._health import _best_reduction


def judged(z: Tensor, labels: Tensor, k: int, proportions: list[float] | None = None) -> str | None:
    rates = rate_reduction(normalize_rows(z.double()), labels, k)
    return diagnose(
        rates.expansion.item(),
        rates.compression.item(),
        num_classes=k,
        dim=z.shape[1],
        eps_sq=0.5,
        proportions=proportions,
    )


def rays(k: int, d: int, labels: Tensor, noise: float, apart: float, seed: int = 0) -> Tensor:
    """Each class around a ray; ``apart`` is what of it is not the common direction."""
    own = apart * torch.nn.functional.one_hot(labels, d).double()
    own[:, -1] += 1.0
    return own + noise * torch.randn(len(labels), d, generator=seeded(seed), dtype=torch.float64) / d**0.5


@pytest.mark.parametrize("k", [2, 3, 10, 50])
@pytest.mark.parametrize("d", [64, 128, 512])
def test_parallel_features_are_collapsed_and_a_ray_per_class_is_not(k: int, d: int) -> None:
    labels = torch.arange(600) % k
    for noise in (0.0, 0.02):
        found = judged(rays(k, d, labels, noise, apart=0.05), labels, k)
        assert found is not None
        assert found.startswith("collapsed")
        # orthogonal rays are the least that any classifier makes: not the maximum, but not collapsed
        assert not (judged(rays(k, d, labels, noise, apart=30.0), labels, k) or "").startswith("collapsed")


def test_features_that_know_nothing_of_the_classes_are_stalled() -> None:
    z = torch.randn(20_000, 64, generator=seeded(1))
    found = judged(z, torch.arange(20_000) % 10, 10)
    assert found is not None
    assert found.startswith("stalled")


def test_a_small_second_class_is_well_if_it_has_its_own_direction() -> None:
    labels = (torch.arange(1000) % 50 == 0).long()
    z = torch.nn.functional.one_hot(labels, 16).double()
    assert judged(z, labels, 2, [0.98, 0.02]) is None
    assert (judged(z * 0 + 1, labels, 2, [0.98, 0.02]) or "").startswith("collapsed")


def test_what_cannot_be_judged_is_well() -> None:
    assert diagnose(1.0, 1.0, num_classes=1, dim=8, eps_sq=0.5) is None
    assert diagnose(float("nan"), 1.0, num_classes=4, dim=8, eps_sq=0.5) is None
    assert diagnose(2.0, 2.0, num_classes=3, dim=8, eps_sq=0.5, proportions=[0, 5, 0]) is None  # one class is there
    with pytest.raises(ValueError, match="proportions must be 3 numbers"):
        diagnose(2.0, 2.0, num_classes=3, dim=8, eps_sq=0.5, proportions=[1.0])


def test_the_maximum_of_balanced_classes() -> None:
    assert _best_reduction([0.1] * 10, 128, 0.5) == pytest.approx(maximal_rate_reduction(128, 10))
