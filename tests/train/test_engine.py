"""How steps are run, what is noticed when one breaks, and when a line of metrics is due. On a GPU: tests/gpu."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.data import open_data
from vmcr2.losses import VMCR2Loss
from vmcr2.models import build
from vmcr2.train import Config, TrainingError, UserError, fit, recipe
from vmcr2.train._checkpoint import load_checkpoint
from vmcr2.train._engine import Engine, _compiles
from vmcr2.train._folder import RunFolder
from vmcr2.train._half import HalfWeights
from vmcr2.train._loop import Trainer
from vmcr2.train._metrics import batch_rates, due
from vmcr2.train._numerics import numerics
from vmcr2.train._step import Step

CPU = torch.device("cpu")


def trainer(objective: str = "vmcr2", **changes: Any) -> Trainer:
    config = recipe("digits", objective=objective, epochs=3, device="cpu", **changes)
    made = Trainer(config, open_data("digits"), CPU)
    made.latch()
    return made


def test_the_step_is_the_loop_of_the_readme() -> None:
    """The engine's steps against zero_grad, loss, backward, step with VMCR2Loss as a user would write it."""
    ours, plain = trainer(), trainer()
    for side in (ours, plain):
        side.network.train()
        side.objective.train()
    engine = Engine(ours.step, 0)
    loss = plain.objective
    assert isinstance(loss, VMCR2Loss)
    for i in range(12):
        index = torch.randperm(1437, generator=torch.Generator().manual_seed(i))[: ours.batch_size]
        ours.step.index.copy_(index)
        engine()
        plain.step.optimizer.zero_grad()
        value = loss(plain.network(plain.step.images[index].float() / 255), plain.step.labels[index])
        (value * plain.config.loss_scale).backward()
        plain.step.optimizer.step()
        assert batch_rates(ours.step, 10)["loss"] == pytest.approx(value.item(), rel=1e-4, abs=1e-4), i


def test_capture_needs_a_gpu() -> None:
    with pytest.raises(UserError, match="engine captured needs a CUDA device"):
        Engine(trainer(engine="captured").step, 0)


def test_compiling_is_decided_by_the_length_of_the_run() -> None:
    config = recipe("mnist-vmcr2")
    cuda = torch.device("cuda")
    assert not _compiles(config, cuda, 1_000_000)
    assert _compiles(config, cuda, 100_000_000)
    assert not _compiles(config, CPU, 100_000_000)
    assert not _compiles(config.replace(compile="no"), cuda, 100_000_000)
    assert _compiles(config.replace(compile="yes"), CPU, 1)
    for other in ("digits", "cifar100-vmcr2"):
        assert not _compiles(recipe(other), cuda, 10**12)


@pytest.mark.parametrize(("epochs", "log_every", "lines"), [(5, 0, 5), (2000, 0, 101), (10, 3, 5), (1, 100, 1)])
def test_lines_of_metrics(epochs: int, log_every: int, lines: int) -> None:
    config = Config(epochs=epochs, log_every=log_every)
    found = [epoch for epoch in range(1, epochs + 1) if due(config, epoch)]
    assert len(found) == lines
    assert found[0] == 1
    assert found[-1] == epochs


def test_numerics_are_put_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with numerics(recipe("digits", precision="bfloat16"), CPU):
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_float32_matmul_precision() == "high"
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_bfloat16_trains_on_a_cpu_too(tmp_path: Path) -> None:
    run = fit(recipe("digits", epochs=60, precision="bfloat16", device="cpu"), out=tmp_path / "run")
    assert run.summary["test_accuracy"] > 0.95


class PoisonAfter:
    """Spoils something once an epoch is over, as a bug or an overflow would."""

    def __init__(self, epoch: int, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.step: Step | None = None
        original = Step.__call__

        def call(step: Step) -> None:
            if step.draw.item() >= epoch:
                if name == "weights":
                    next(step.network.parameters()).data.fill_(float("inf"))
                else:
                    getattr(step.objective, name).fill_(float("nan"))
            original(step)

        monkeypatch.setattr(Step, "__call__", call)


@pytest.mark.parametrize(
    ("name", "named"), [("weights", "the features"), ("dictionary", "dictionary"), ("codes", "codes")]
)
def test_what_breaks_is_named_and_the_checkpoint_is_from_before(
    name: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PoisonAfter(2, monkeypatch, name)
    config = recipe("digits", epochs=6, checkpoint_seconds=0.0, device="cpu")
    with pytest.raises(TrainingError, match=f"broke in epoch 3, not finite: .*{named}"):
        fit(config, out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert [record["epoch"] for record in folder.read_metrics()] == [1, 2]
    assert not folder.finished
    whole = trainer()
    assert load_checkpoint(folder.checkpoint, whole.step).epoch == 2
    assert all(torch.isfinite(parameter).all() for parameter in whole.network.parameters())


def test_copies_of_weights_in_bfloat16_are_what_autocast_makes() -> None:
    torch.manual_seed(0)
    ours = build("resnet18", dim=8, input_shape=(3, 32, 32)).train()
    autocast = copy.deepcopy(ours)
    images, weight = torch.rand(4, 3, 32, 32).bfloat16(), torch.randn(4, 8)
    half = HalfWeights(ours)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        z, wanted = half(images), autocast(images)
        for output in (z, wanted):
            (output * weight).sum().backward()
    half.bring_back()
    assert torch.equal(z, wanted)
    for (name, a), b in zip(ours.named_parameters(), autocast.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert a.grad is not None, name
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad), name
    before = half(images).detach()
    with torch.no_grad():
        ours.head[3].weight.add_(1.0)  # type: ignore[union-attr, index, operator]
    assert not torch.equal(half(images), before), "copies are made anew at every call"


def test_metrics_are_made_before_latching(tmp_path: Path) -> None:
    """Right after latching M is a hundredth of what it is between: the curve would have dips that no step made."""
    run = fit(recipe("digits", epochs=60, latch_every=20, log_every=10, device="cpu"), out=tmp_path / "run")
    gaps = {line["epoch"]: line["mismatch"] for line in RunFolder(run.folder).read_metrics()}
    assert min(gaps[20], gaps[40]) > 0.3 * gaps[30]
