"""The study of the pull: its gradient is that of the loss along the sphere, and every sample is in one range."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from experiments import pull
from experiments._trained import PAGE
from vmcr2 import MCR2Loss
from vmcr2.runs import Config

D, K, EACH = 12, 3, 4


def features(angle: float) -> tuple[Tensor, Tensor]:
    """Classes that fill four coordinates each, and a sample of class 0 at an angle to these, towards class 1's."""
    z = torch.eye(D, dtype=torch.float64).repeat(5, 1)
    labels = (torch.arange(D) // EACH).repeat(5)
    odd = math.cos(angle) * z[0] + math.sin(angle) * z[EACH]
    return torch.cat([z, odd.unsqueeze(0)]), torch.cat([labels, torch.zeros(1, dtype=torch.int64)])


def of_the_odd_one(angle: float) -> float:
    return pull.pull(MCR2Loss(K).double(), *features(angle))[-1].item()


def test_the_pull_is_along_the_sphere() -> None:
    """A sample in the subspace of its own class, or wholly in that of another, is at a place without slope."""
    halfway = of_the_odd_one(math.pi / 4)
    assert of_the_odd_one(0.0) < 1e-9 * halfway
    assert of_the_odd_one(math.pi / 2) < 1e-9 * halfway
    assert of_the_odd_one(0.9 * math.pi / 2) < 0.5 * halfway


def test_every_sample_is_in_one_range() -> None:
    shares = torch.tensor([0.0, 0.05, 0.39, 0.4, 0.95, 1.0])
    right = torch.tensor([False, True, True, False, True, True])
    lines = pull.by_share(shares, torch.arange(6.0), right)
    assert [line["samples"] for line in lines] == [1, 1, 0, 1, 1, 0, 0, 2]
    assert [line["wrong"] for line in lines] == [1, 0, 0, 0, 1, 0, 0, 0]
    assert lines[-1]["pull"] == 4.5
    assert "pull" not in lines[2]


def test_the_page_has_the_table_of_the_results() -> None:
    results = json.loads(pull.STUDY.results.read_text())["results"]
    assert pull.shown(results) in PAGE.read_text()


@pytest.mark.parametrize("config", pull.configs(2).values(), ids=pull.NAMES)
def test_its_runs_are_measured_on_held_out_images(config: Config) -> None:
    assert config.data.holdout == 5000
