"""Runs with mixed pictures: the objective gets memberships, until the run says that it is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from digits_trainer import prepared, quick, train
from run_files import weights
from torch import Tensor

from vmcr2.runs import UserError, fit

OBJECTIVES = ["vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2"]


def told(made: Any) -> list[Tensor]:
    """What the objective is told from now on."""
    found: list[Tensor] = []
    original = made.objective.surrogate

    def surrogate(z: Tensor, labels: Tensor, *others: Any) -> Tensor:
        found.append(labels)
        answer: Tensor = original(z, labels, *others)
        return answer

    made.objective.surrogate = surrogate
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_objective_gets_memberships_and_later_labels(objective: str) -> None:
    made = prepared(objective, epochs=4, mix="mixup", mix_until=0.5, batch_size=100)
    found = told(made)
    changed, labels = [], []
    for epoch in range(4):
        changed.append(made.step.begin(epoch))
        train(made, epoch)
        labels.append(made.step.samples.labels[made.step.index])
    assert changed == [False, False, True, False], "a recorded step is void when mixing ends"
    assert [one.shape for one in found] == [(100, 10), (100, 10), (100,), (100,)]
    assert torch.allclose(found[0].sum(1), torch.ones(100))
    for mixed, own in zip(found[:2], labels[:2], strict=True):
        assert (mixed.gather(1, own[:, None]) >= 0.5 - 1e-6).all(), "a picture keeps at least half of itself"
    assert all(torch.equal(told_labels, own) for told_labels, own in zip(found[2:], labels[2:], strict=True))
    assert not made.step.broken


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_a_run_learns_from_mixed_pictures(objective: str, kind: str, tmp_path: Path) -> None:
    config = quick(objective, epochs=30, mix=kind, mix_until=0.8, calibration_share=0.0)
    summary = fit(config, out=tmp_path / "run").summary
    assert summary["readout_accuracy"] > 0.9


def test_a_mean_of_weights_is_measured_with_statistics_of_whole_pictures() -> None:
    """BatchNorm's statistics are recomputed for it, on what the network will see."""
    made = prepared("ce", epochs=2, mix="mixup", average=0.9, batch_size=100)
    plain = prepared("ce", epochs=2, average=0.9, batch_size=100)
    index = torch.arange(100)
    with torch.no_grad():
        assert torch.equal(made.step._see(index), plain.step._see(index))
    assert made.step.samples.mixing, "training goes on as before"


@pytest.mark.parametrize(("objective", "settings"), [("vmcr2", {}), ("mcr2", {"memory": 900, "soft_memory": True})])
def test_a_run_goes_on_as_if_nothing_had_happened(objective: str, settings: dict[str, Any], tmp_path: Path) -> None:
    config = quick(objective, epochs=4, mix="cutmix", mix_until=0.75, **settings)
    whole = fit(config, out=tmp_path / "whole")

    class Stop:
        def epoch(self, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(config, out=tmp_path / "parts", callbacks=[Stop()])
    parts = fit(config, out=tmp_path / "parts", resume=True)
    one, two = weights(whole.folder), weights(parts.folder)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(("objective", "settings"), [("mcr2", {"memory": 900}), ("vmcr2", {"block": True})])
def test_what_has_no_room_for_memberships(objective: str, settings: dict[str, Any]) -> None:
    words = (
        "^a memory, and V-MCR² in blocks, need one class for each sample: set mix=none, soft_memory=true, memory=0 or "
    )
    with pytest.raises(UserError, match=words):
        quick(objective, mix="mixup", **settings)


@pytest.mark.parametrize("objective", ["mcr2", "ce+mcr2"])
def test_a_soft_memory_takes_mixed_pictures(objective: str, tmp_path: Path) -> None:
    """And labels, when mixing has ended: a row of the memory then has one class again."""
    config = quick(objective, epochs=30, mix="cutmix", mix_until=0.8, memory=900, soft_memory=True)
    run = fit(config, out=tmp_path / "run")
    assert run.summary["readout_accuracy"] > 0.9


def test_a_soft_memory_needs_one() -> None:
    with pytest.raises(UserError, match=r"^soft_memory needs memory, at least batch_size \d+, got 0: set memory, or "):
        quick("mcr2", soft_memory=True, mix="mixup")
    with pytest.raises(UserError, match=r"^soft_memory is for mixed samples"):
        quick("mcr2", soft_memory=True, memory=900)


def test_it_acts_with_mixing_only() -> None:
    with pytest.raises(UserError, match=r"^mix_until acts with mix mixup or cutmix only"):
        quick("ce", mix_until=0.5)
