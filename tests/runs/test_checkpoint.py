"""A checkpoint puts a run's state back as the run had it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_trainer import CPU
from safetensors.torch import load_file
from seeds import SEED
from torch import nn

from vmcr2.objectives import CESettings
from vmcr2.runs import RunFolder, UserError
from vmcr2.runs._checkpoint import Position, load_checkpoint, read_position, save_checkpoint
from vmcr2.runs._tensor_files import write_tensors
from vmcr2.training import Numerics, OptimSettings, Rows, Step


def step(seed: int, **optim: Any) -> Step:
    """A network of convolutions whose weights lie channels last in memory, as on a GPU."""
    torch.manual_seed(seed)
    layers = (nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    labels = torch.arange(20) % 5
    pictures = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    made = Step(
        network,
        CESettings().build(5, 6, labels, 10),
        Rows(pictures, labels),
        OptimSettings(**{"lr": 0.1, "average": 0.9} | optim),
        batch_size=10,
        dim=6,
        seed=0,
        numerics=Numerics(CPU),
    )
    made.index.copy_(torch.arange(10))
    return made


@pytest.fixture(autouse=True)
def _folder_of_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()


@pytest.mark.parametrize("decay_all", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_optimiser_goes_on_with_weights_in_any_layout(optimizer: str, decay_all: bool, tmp_path: Path) -> None:
    one = step(SEED, optimizer=optimizer, decay_all=decay_all, weight_decay=0.1)
    for _ in range(3):
        one()
    save_checkpoint(RunFolder(tmp_path), one, Position(1, 3, 0.5))
    two = step(SEED + 1, optimizer=optimizer, decay_all=decay_all, weight_decay=0.1)
    assert load_checkpoint(RunFolder(tmp_path), two, warnings.warn) == Position(1, 3, 0.5)
    states = [[made.optimizer.state[parameter] for parameter in made.parameters] for made in (one, two)]
    for mine, theirs in zip(*states, strict=True):
        for name, value in mine.items():
            assert torch.equal(theirs[name], value)
            assert theirs[name].stride() == value.stride()  # a fused step walks weight and momentum in one order
    one()
    two()
    for mine, theirs in zip(one.parameters, two.parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_its_names_do_not_depend_on_the_optimiser_s_groups(tmp_path: Path) -> None:
    """Earlier versions had one group of all parameters, in the order of the network and then of the objective."""
    shapes = []
    for decay_all in (True, False):
        made = step(SEED, decay_all=decay_all)
        made()
        assert len(made.optimizer.param_groups) == (1 if decay_all else 2)
        save_checkpoint(RunFolder(tmp_path), made, Position(1, 1, 0.5))
        kept = load_file(RunFolder(tmp_path).checkpoint)
        shapes.append([kept[f"optimizer.{i}.momentum_buffer"].shape for i in range(len(made.parameters))])
        assert shapes[-1] == [parameter.shape for parameter in made.parameters]
    assert shapes[0] == shapes[1]


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    one = step(SEED)
    torch.manual_seed(SEED + 5)
    save_checkpoint(RunFolder(tmp_path), one, Position(0, 0, 0.0))
    expected = torch.rand(4)
    torch.manual_seed(SEED + 6)
    load_checkpoint(RunFolder(tmp_path), one, warnings.warn)
    assert torch.equal(torch.rand(4), expected)


def test_it_has_the_mean_of_the_weights_and_needs_it_only_with_one(tmp_path: Path) -> None:
    path = RunFolder(tmp_path)
    made, other = step(SEED), step(SEED + 1)
    for _ in range(4):
        made()
    save_checkpoint(path, made, Position(1, 4, 1.0))
    load_checkpoint(path, other, warnings.warn)
    assert made.average is not None
    assert other.average is not None
    for name, value in made.average.state_dict().items():
        assert torch.equal(other.average.state_dict()[name], value), name
    assert other.average.steps == 4
    save_checkpoint(path, step(SEED, average=0.0), Position(1, 1, 1.0))
    assert load_checkpoint(path, step(SEED, average=0.0), warnings.warn).epoch == 1
    with pytest.raises(UserError, match="has no averaged weights: it belongs to a run with average 0"):
        load_checkpoint(path, other, warnings.warn)


def test_another_file_is_not_one(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    with pytest.raises(UserError, match=r"last\.safetensors is missing or damaged"):
        read_position(path)
    for metadata in (None, {"position": "{"}, {"position": "[]"}, {"position": '{"epoch": 1}'}):
        write_tensors(path, {"a": torch.ones(2)}, metadata)
        with pytest.raises(UserError, match=r"last\.safetensors is not a checkpoint of this version of vmcr2"):
            read_position(path)
