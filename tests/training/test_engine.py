"""How steps are run, and what the network's precision changes. On a GPU: tests/gpu."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from digits_trainer import CPU, feed, prepared
from seeds import SEED

from vmcr2.data import open_data
from vmcr2.losses import VMCR2Loss
from vmcr2.models import build
from vmcr2.runs import Trainer, UserError, recipe
from vmcr2.training import Engine, Numerics, batch_figures
from vmcr2.training._bfloat16_weights import BFloat16Weights


def test_the_step_is_the_loop_of_the_readme() -> None:
    """The engine's steps against zero_grad, loss, backward, step with VMCR2Loss as a user would write it."""
    ours, plain = (prepared("vmcr2", hidden=(64,), seed=SEED) for _ in range(2))
    engine = Engine(ours.step)
    loss, samples = plain.objective.module, plain.step.samples
    assert isinstance(loss, VMCR2Loss)
    losses = []
    for draw in range(8):
        feed(ours, draw)
        engine()
        index = ours.step.index
        plain.step.optimizer.zero_grad()
        value = loss(plain.network(samples.plain_batch(index)), samples.labels[index])
        (value * plain.config.objective.loss_scale).backward()
        plain.step.optimizer.step()
        losses.append(value.item())
        assert batch_figures(ours.step)["loss"] == pytest.approx(value.item(), rel=1e-4, abs=1e-3), draw
    assert losses[-1] < losses[0] - 10, "the steps learn something, so that equal losses mean equal steps"


def test_capture_needs_a_gpu() -> None:
    made = prepared("ce", hidden=(16,))
    with pytest.raises(UserError, match="engine captured needs a CUDA device: use engine auto or eager"):
        Engine(made.step, capture="captured")
    assert not Engine(made.step).captured


@pytest.mark.parametrize(("choice", "compiled"), [("auto", False), ("no", False), ("yes", True)])
def test_the_network_is_compiled_where_that_was_asked_for(
    choice: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call, **_: asked.append(call) or call)
    config = recipe("digits", model="mnist-cnn", image_size=32, dim=8, device="cpu", compile=choice)
    made = Trainer(config, open_data("digits"), CPU)
    made.loop(10**12, pytest.fail)
    assert asked == ([made.step.featurize] if compiled else [])


def test_numerics_are_restored() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with Numerics.choose(CPU, "bfloat16").applied():
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_float32_matmul_precision() == "high"
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_copies_of_weights_in_bfloat16_are_what_autocast_makes() -> None:
    ours = build("resnet18", dim=8, input_shape=(3, 32, 32)).train()
    autocast = copy.deepcopy(ours)
    images, weight = torch.rand(4, 3, 32, 32).bfloat16(), torch.randn(4, 8)
    half = BFloat16Weights(ours)
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
    assert torch.equal(half(images), before)
    half.refresh()
    assert not torch.equal(half(images), before), "the copies are those of the last refresh"
