"""The running mean of the weights inside a captured step, and its BatchNorm statistics by the fused kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gpu_training
import pytest
import torch
from digits_trainer import feed
from gpu_training import engine_of
from torch import Tensor, nn

from vmcr2.models import build
from vmcr2.runs import Trainer
from vmcr2.training import Numerics
from vmcr2.training._average import remake_statistics
from vmcr2.training._engine import WARM_UP

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")


def trainer(objective: str, **changes: Any) -> Trainer:
    return gpu_training.trainer(objective, **{"average": 0.9} | changes)


def state_of(made: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in made.network.state_dict().items()}


def side_by_side(made: list[Trainer], between: Callable[[Trainer], None]) -> None:
    """Steps of an eager trainer and of a captured one; what is done between two leaves the network as it was."""
    engines = [engine_of(one) for one in made]
    for draw in range(WARM_UP + 20):
        for one, engine in zip(made, engines, strict=True):
            feed(one, draw)
            engine()
            if draw % 8 == 7:
                before = state_of(one)
                between(one)
                assert all(torch.equal(value, before[name]) for name, value in one.network.state_dict().items())
    assert engines[1].captured


@pytest.mark.parametrize("objective", ["vmcr2", "ce"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.usefixtures("deterministic")
def test_a_captured_run_has_the_mean_of_an_eager_one(objective: str, precision: str) -> None:
    """Measured on the way too: what is put in place between two replays is gone before the second."""
    made = [trainer(objective, engine=engine, precision=precision) for engine in ("eager", "captured")]

    def measured(one: Trainer) -> None:
        with one.step.measured():
            assert one.step.average is not None
            for name, parameter in one.network.named_parameters():
                assert torch.equal(parameter, one.step.average.means[f"model.{name}"]), name

    side_by_side(made, measured)
    eager, captured = (one.step.average for one in made)
    assert eager is not None
    assert captured is not None
    assert eager.steps == captured.steps == WARM_UP + 20
    rough = {"rtol": 1e-3, "atol": 1e-4} if precision == "float32" else {"rtol": 5e-2, "atol": 5e-3}
    for name, mean in captured.means.items():
        torch.testing.assert_close(mean, eager.means[name], **rough)
    for one in made:
        one.step.settle()
    for name, value in made[1].network.state_dict().items():
        torch.testing.assert_close(value, made[0].network.state_dict()[name], **rough)


@pytest.mark.usefixtures("deterministic")
def test_latching_between_two_replays_leaves_no_trace_in_the_network() -> None:
    made = [trainer("vmcr2", engine=engine, average=0.0) for engine in ("eager", "captured")]
    side_by_side(made, lambda one: one.objective.latch(one.step.embed(), one.step.samples.labels))
    for name, value in made[1].network.state_dict().items():
        torch.testing.assert_close(value, made[0].network.state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", ["vmcr2", "ce"])
def test_the_mean_is_of_the_weights_that_replays_made(objective: str) -> None:
    made = trainer(objective, average=0.3)
    engine = engine_of(made)
    assert made.step.average is not None
    weights = made.step.average.weights
    wanted = {name: weight.detach().double() for name, weight in weights.items()}
    for draw in range(WARM_UP + 8):
        feed(made, draw)
        engine()
        kept = min(0.3, (2 + draw) / (11 + draw))
        wanted = {name: kept * mean + (1 - kept) * weights[name].detach().double() for name, mean in wanted.items()}
    assert engine.captured
    for name, mean in made.step.average.means.items():
        torch.testing.assert_close(mean.double(), wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_with_it_does_not_synchronise(precision: str) -> None:
    made = trainer("ce", precision=precision)
    for draw in range(2):
        feed(made, draw)
        made.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["resnet18", "preact18"])
def test_statistics_by_the_fused_kernels_are_torchs_cumulative_ones(name: str) -> None:
    """A momentum of None is torch's own mean over batches, and is not fused."""
    torch.manual_seed(0)
    ours = Numerics(CUDA).place(build(name, dim=16, input_shape=(3, 32, 32)))
    images = torch.rand(192, 3, 32, 32, device=CUDA).contiguous(memory_format=torch.channels_last)
    batches = list(torch.split(torch.arange(192, device=CUDA), 64))
    theirs = copy.deepcopy(ours).train()
    for part in theirs.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None
    with torch.no_grad():
        for batch in batches:
            theirs(images[batch])
    before = torch.cuda.get_rng_state()
    remake_statistics(ours, lambda index: ours(images[index]), batches)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    for (key, a), b in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
