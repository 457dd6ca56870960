"""A checkpoint puts a run's state back as the run had it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from vmcr2.data import Split
from vmcr2.train._checkpoint import Position, load_checkpoint, save_checkpoint
from vmcr2.train._config import Config
from vmcr2.train._objective import build_objective
from vmcr2.train._step import Step


def step(optimizer: str, seed: int) -> Step:
    """A network of convolutions whose weights lie channels last in memory, as on a GPU."""
    torch.manual_seed(seed)
    config = Config(objective="ce", dim=6, image_size=8, optimizer=optimizer, lr=0.1, average=0.9)  # type: ignore[arg-type]
    layers = (nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    images = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
    split = Split(images, torch.arange(20) % 5)
    made = Step(config, network, build_objective(config, split.labels, 5), split, 10, torch.device("cpu"))
    made.index.copy_(torch.arange(10))
    return made


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_optimiser_goes_on_with_weights_in_any_layout(optimizer: str, tmp_path: Path) -> None:
    one = step(optimizer, 0)
    for _ in range(3):
        one()
    save_checkpoint(tmp_path / "c.safetensors", one, Position(1, 3, 0.5))
    two = step(optimizer, 1)
    two.images, two.labels = one.images, one.labels
    assert load_checkpoint(tmp_path / "c.safetensors", two) == Position(1, 3, 0.5)
    states = [list(made.optimizer.state.values()) for made in (one, two)]
    for mine, theirs in zip(*states, strict=True):
        for name, value in mine.items():
            assert torch.equal(theirs[name], value)
            assert theirs[name].stride() == value.stride()  # a fused step walks weight and momentum in one order
    one()
    two()
    for mine, theirs in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)
