"""Captured steps do what eager ones do, do not synchronise, and go on eagerly where a capture is not possible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from digits_trainer import feed as feed_batch
from gpu_training import engine_of, trainer

from vmcr2.losses import MCR2Loss, VMCR2Loss
from vmcr2.runs import Trainer, UserError
from vmcr2.training import batch_figures
from vmcr2.training._engine import WARM_UP

pytestmark = pytest.mark.gpu

OBJECTIVES = ["vmcr2", "mcr2", "mcr2 with a memory", "ce", "ce+mcr2", "ce+vmcr2"]
PREACT: dict[str, Any] = {"model": "preact18", "image_size": 16, "augmentation": "none", "batch_size": 100}


def feed(made: Trainer, draw: int) -> None:
    feed_batch(made, draw)
    made.step.rate.fill_(0.1 * (1 - draw / 100))


@pytest.mark.parametrize(
    ("objective", "changes"),
    [(name, {}) for name in OBJECTIVES]
    + [("vmcr2", PREACT), ("ce", PREACT), ("vmcr2", {"focus": 3.0})]
    + [(name, {"mix": "cutmix"} | ({"soft_memory": True} if "memory" in name else {})) for name in OBJECTIVES],
)
@pytest.mark.usefixtures("deterministic")
def test_captured_and_eager_give_the_same_losses_over_100_steps(objective: str, changes: dict[str, Any]) -> None:
    eager, captured = (trainer(objective, engine=engine, **changes) for engine in ("eager", "captured"))
    engines = engine_of(eager), engine_of(captured)
    modules = eager.objective.module, captured.objective.module
    for draw in range(100):
        losses = []
        for made, engine in zip((eager, captured), engines, strict=True):
            feed(made, draw)
            engine()
            losses.append(batch_figures(made.step)["loss"])
        assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-4), draw
        if isinstance(modules[0], MCR2Loss) and modules[0].memory:
            assert isinstance(modules[1], MCR2Loss)
            kept = "memory_memberships" if modules[0].soft_memory else "memory_labels"
            assert torch.allclose(getattr(modules[1], kept), getattr(modules[0], kept)), draw
            assert torch.equal(modules[1].memory_next, modules[0].memory_next), draw
    assert engines[1].captured
    assert not engines[0].captured
    assert not captured.step.broken


@pytest.mark.parametrize(
    ("objective", "changes"), [("vmcr2", {}), ("mcr2", {}), ("mcr2 with a memory", {"soft_memory": True})]
)
@pytest.mark.usefixtures("deterministic")
def test_captured_and_eager_are_one_when_mixing_ends(objective: str, changes: dict[str, Any]) -> None:
    """From then on a step looks ahead, and is recorded again."""
    mixed = {"mix": "cutmix", "mix_until": 0.5, "epochs": 4} | changes
    eager, captured = (trainer(objective, engine=engine, **mixed) for engine in ("eager", "captured"))
    engines = engine_of(eager), engine_of(captured)
    for epoch in range(4):
        losses: list[list[float]] = [[], []]
        for made, engine, found in zip((eager, captured), engines, losses, strict=True):
            if made.step.begin(epoch):
                engine.renew()
            for draw in range(8):
                feed(made, 8 * epoch + draw)
                engine()
                found.append(batch_figures(made.step)["loss"])
        assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-4), epoch
    assert engines[1].captured
    assert not captured.step.broken


@pytest.mark.usefixtures("deterministic")
def test_captured_steps_are_the_plain_loop_of_the_readme() -> None:
    ours, plain = trainer("vmcr2", augmentation="none"), trainer("vmcr2", augmentation="none")
    engine = engine_of(ours)
    loss, samples = plain.objective.module, plain.step.samples
    assert isinstance(loss, VMCR2Loss)
    for draw in range(30):
        for made in (ours, plain):
            feed(made, draw)
        engine()
        index = plain.step.index
        plain.step.optimizer.zero_grad()
        value = loss(plain.network(samples.plain_batch(index)), samples.labels[index])
        (value * plain.config.objective.loss_scale).backward()
        plain.step.optimizer.step()
        assert batch_figures(ours.step)["loss"] == pytest.approx(value.item(), rel=1e-4, abs=1e-3), draw
    assert engine.captured


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_does_not_synchronise(objective: str, precision: str) -> None:
    made = trainer(objective, precision=precision)
    for draw in range(2):
        feed(made, draw)
        made.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "changes",
    [{"batch_expansion": 0.0}, {"debias": False}, {"codes": "flat", "codes_trace": 3.0}, {"mu": 0.1}, {"focus": 10.0}],
)
def test_every_variant_is_captured(changes: dict[str, Any]) -> None:
    made = trainer("vmcr2", **changes)
    engine = engine_of(made, say=pytest.fail)
    for draw in range(WARM_UP + 2):
        feed(made, draw)
        engine()
    assert engine.captured
    assert not made.step.broken


def test_a_step_that_cannot_be_captured_goes_on_without() -> None:
    made = trainer("ce")
    original = made.step.featurize

    def synchronising(index: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
        assert index.sum().item() >= 0
        return original(index, draw)

    made.step.forward = synchronising
    said: list[str] = []
    engine = engine_of(made, say=said.append)
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
    made.step.forward = lambda index, draw: original(index + 0 * int(index[0]), draw)
    engine = engine_of(made)
    for draw in range(WARM_UP):
        feed(made, draw)
        engine()
    with pytest.raises(UserError, match="cannot be captured"):
        engine()


def test_a_learning_rate_acts_on_a_replayed_step() -> None:
    made = trainer("vmcr2")
    engine = engine_of(made)
    for draw in range(WARM_UP + 1):
        feed(made, draw)
        engine()
    before = [parameter.clone() for parameter in made.network.parameters()]
    made.step.rate.fill_(0.0)
    engine()
    assert all(torch.equal(a, b) for a, b in zip(before, made.network.parameters(), strict=True))


def test_a_step_is_recorded_again_when_dropout_is_switched_off() -> None:
    made = trainer("vmcr2", model="mnist-cnn", image_size=32, augmentation="none", dropout_until=0.5)
    engine = engine_of(made)

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
