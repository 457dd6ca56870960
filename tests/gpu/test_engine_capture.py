"""Captured steps do what eager ones do, do not synchronise, and go on eagerly where a capture is not possible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_training import trainer

from vmcr2.losses import MCR2Loss, VMCR2Loss
from vmcr2.train import UserError
from vmcr2.train._engine import WARM_UP, Engine
from vmcr2.train._loop import Trainer
from vmcr2.train._metrics import batch_rates

pytestmark = pytest.mark.gpu

OBJECTIVES = ["vmcr2", "mcr2", "mcr2 with a memory", "ce"]


def feed(made: Trainer, draw: int) -> None:
    generator = torch.Generator().manual_seed(draw)
    made.step.index.copy_(torch.randperm(1437, generator=generator)[: made.batch_size])
    made.step.draw.fill_(draw)
    made.step.rate.fill_(0.1 * (1 - draw / 100))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.usefixtures("deterministic")
def test_captured_and_eager_give_the_same_losses_over_100_steps(objective: str) -> None:
    eager, captured = trainer(objective, engine="eager"), trainer(objective, engine="captured")
    engines = Engine(eager.step, 0), Engine(captured.step, 0)
    for draw in range(100):
        losses = []
        for made, engine in zip((eager, captured), engines, strict=True):
            feed(made, draw)
            engine()
            losses.append(batch_rates(made.step, 10)["loss"])
        assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-4), draw
        if isinstance(eager.objective, MCR2Loss) and eager.objective.memory:
            assert isinstance(captured.objective, MCR2Loss)
            assert torch.equal(captured.objective.memory_labels, eager.objective.memory_labels), draw
            assert torch.equal(captured.objective.memory_next, eager.objective.memory_next), draw
    assert engines[1].captured
    assert not engines[0].captured
    assert not captured.step.broken


@pytest.mark.usefixtures("deterministic")
def test_captured_steps_are_the_plain_loop_of_the_readme() -> None:
    ours, plain = trainer("vmcr2", augmentation="none"), trainer("vmcr2", augmentation="none")
    engine = Engine(ours.step, 0)
    loss = plain.objective
    assert isinstance(loss, VMCR2Loss)
    for draw in range(30):
        for made in (ours, plain):
            feed(made, draw)
        engine()
        index = plain.step.index
        plain.step.optimizer.zero_grad()
        value = loss(plain.network(plain.step.images[index].float() / 255), plain.step.labels[index])
        (value * plain.config.loss_scale).backward()
        plain.step.optimizer.step()
        assert batch_rates(ours.step, 10)["loss"] == pytest.approx(value.item(), rel=1e-4, abs=1e-3), draw
    assert engine.captured


@pytest.mark.parametrize("sharpness", [0.0, 0.05])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_does_not_synchronise(objective: str, precision: str, sharpness: float) -> None:
    made = trainer(objective, precision=precision, sharpness=sharpness)
    for draw in range(2):
        feed(made, draw)
        made.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("changes", [{"batch_expansion": 0.0}, {"debias": True}, {"codes": "flat"}, {"mu": 0.1}])
def test_every_variant_is_captured(changes: dict[str, Any]) -> None:
    made = trainer("vmcr2", **changes)
    engine = Engine(made.step, 0, say=pytest.fail)
    for draw in range(WARM_UP + 2):
        feed(made, draw)
        engine()
    assert engine.captured
    assert not made.step.broken


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.usefixtures("deterministic")
def test_sharpness_aware_steps_are_captured(objective: str, precision: str) -> None:
    """Two passes, and weights that climb and come back."""
    made = [trainer(objective, engine=kind, precision=precision, sharpness=0.05) for kind in ("eager", "captured")]
    engines = [Engine(one.step, 0, say=pytest.fail) for one in made]
    for draw in range(WARM_UP + 10):
        for one, engine in zip(made, engines, strict=True):
            feed(one, draw)
            engine()
    assert engines[1].captured
    rough = {"rtol": 1e-3, "atol": 1e-4} if precision == "float32" else {"rtol": 5e-2, "atol": 1e-2}
    for name, value in made[1].network.state_dict().items():
        torch.testing.assert_close(value, made[0].network.state_dict()[name], **rough)
        assert torch.isfinite(value).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_sharpness_aware_steps_of_a_resnet_keep_a_plain_step_s_statistics(precision: str) -> None:
    """By the fused kernels, with the copies in bfloat16: the pass uphill leaves BatchNorm's statistics alone."""
    settings: dict[str, Any] = {"model": "resnet18", "image_size": 32, "augmentation": "none", "precision": precision}
    plain, sharp = trainer("vmcr2", **settings), trainer("vmcr2", sharpness=0.5, **settings)
    for made in (plain, sharp):
        feed(made, 0)
        made.step()
    assert not sharp.step.broken
    found = dict(sharp.network.named_buffers())
    moved = 0
    for name, wanted in plain.network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            torch.testing.assert_close(
                found[name], wanted, rtol=1e-2, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
            moved += int(not torch.equal(wanted, torch.full_like(wanted, float(name.endswith("var")))))
    assert moved
    weights = zip(plain.network.parameters(), sharp.network.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in weights)


def test_a_step_that_cannot_be_captured_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer("ce")
    original = made.step.featurize

    def synchronising(images: torch.Tensor, index: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
        assert index.sum().item() >= 0
        return original(images, index, draw)

    made.step.forward = synchronising
    said: list[str] = []
    engine = Engine(made.step, 0, said.append)
    for draw in range(WARM_UP + 3):
        feed(made, draw)
        engine()
    assert not engine.captured
    assert len(said) == 1
    assert "cannot be captured" in said[0]
    assert not made.step.broken


def test_a_capture_that_was_asked_for_must_succeed() -> None:
    made = trainer("ce", engine="captured")
    original = made.step.featurize
    made.step.forward = lambda images, index, draw: original(images, index + 0 * int(index[0]), draw)
    engine = Engine(made.step, 0)
    for draw in range(WARM_UP):
        feed(made, draw)
        engine()
    with pytest.raises(UserError, match="cannot be captured"):
        engine()


def test_a_learning_rate_and_a_schedule_act_on_a_replayed_step() -> None:
    made = trainer("vmcr2")
    engine = Engine(made.step, 0)
    for draw in range(WARM_UP + 1):
        feed(made, draw)
        engine()
    before = [parameter.clone() for parameter in made.network.parameters()]
    made.step.rate.fill_(0.0)
    engine()
    assert all(torch.equal(a, b) for a, b in zip(before, made.network.parameters(), strict=True))


def test_a_step_is_recorded_anew_when_dropout_begins_to_rest() -> None:
    made = trainer("vmcr2", model="mnist-cnn", image_size=32, augmentation="none", dropout_until=0.5)
    engine = Engine(made.step, 0)

    def seen(epoch: int) -> list[torch.Tensor]:
        """Features of one batch in two recorded steps at a rate of 0."""
        if made.step.begin(epoch):
            engine.renew()
        made.step.index.copy_(torch.arange(made.batch_size))
        made.step.rate.fill_(0.0)
        found = []
        for _ in range(WARM_UP + 3):
            engine()
            found.append(made.step.features.clone())
        assert engine.captured
        return found[-2:]

    first, second = seen(0)
    assert not torch.equal(first, second)
    first, second = seen(2)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)
