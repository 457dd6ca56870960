"""BatchNorm's statistics made anew for latching and for measuring, where a run asks for it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_training import CPU, prepared, train
from torch import Tensor

from vmcr2.losses import VMCR2Loss
from vmcr2.train import fit, recipe
from vmcr2.train._average import remake_statistics
from vmcr2.train._evaluate import embed
from vmcr2.train._loop import Trainer


def trainer(steps: int, **changes: Any) -> Trainer:
    """On digits, after some steps at a rate at which running statistics lag."""
    made = prepared("vmcr2", epochs=4, lr=1.0, augmentation="crop", crop_padding=1, **changes)
    for draw in range(steps):
        train(made, draw)
    return made


def by_hand(made: Trainer) -> Tensor:
    """Features of all training images by a copy of the network with statistics of its own."""
    network = copy.deepcopy(made.network)
    original, made.step.network = made.step.network, network
    remake_statistics(network, made.step._see, made.step._pass())
    made.step.network = original
    return embed(made.config, network, made.train_split.images, CPU)


def buffers_of(made: Trainer) -> list[Tensor]:
    return [value.clone() for value in made.network.buffers()]


def test_the_dictionary_is_latched_on_features_by_fresh_statistics() -> None:
    made = trainer(5, fresh_statistics=True)
    before = buffers_of(made)
    wanted = by_hand(made)
    lagging = embed(made.config, made.network, made.train_split.images, CPU)
    assert (wanted - lagging).norm() > 0.1 * lagging.norm()  # or nothing is shown here
    assert isinstance(made.objective, VMCR2Loss)
    other = copy.deepcopy(made.objective)
    other.latch(wanted, made.step.labels)
    made.latch()
    torch.testing.assert_close(made.objective.dictionary, other.dictionary)
    torch.testing.assert_close(made.objective.codes, other.codes)
    assert all(torch.equal(a, b) for a, b in zip(buffers_of(made), before, strict=True))


def test_the_run_is_measured_and_kept_with_them() -> None:
    made = trainer(5, fresh_statistics=True)
    wanted, before = by_hand(made), buffers_of(made)
    with made.step.measured():
        torch.testing.assert_close(embed(made.config, made.network, made.train_split.images, CPU), wanted)
    assert all(torch.equal(a, b) for a, b in zip(buffers_of(made), before, strict=True))
    made.step.settle()
    torch.testing.assert_close(embed(made.config, made.network, made.train_split.images, CPU), wanted)


def test_without_it_nothing_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from vmcr2.train import _step

    monkeypatch.setattr(_step, "remake_statistics", lambda *rest: pytest.fail("statistics were made"))
    made = trainer(2)
    made.latch()
    with made.step.measured():
        pass
    made.step.settle()


def test_a_network_without_batch_norm_is_as_it_was(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"device": "cpu", "epochs": 2, "batch_norm": False, "holdout": 287, "latch_every": 1}
    runs = [
        fit(recipe("digits", fresh_statistics=fresh, **settings), out=tmp_path / str(fresh)).summary
        for fresh in (False, True)
    ]
    assert runs[0]["holdout_accuracy"] == runs[1]["holdout_accuracy"]
    assert runs[0]["train_delta_r"] == runs[1]["train_delta_r"]
