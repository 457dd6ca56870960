"""The trainer's very step, captured whole in a CUDA graph, does what it does eagerly; and it does not synchronise."""

from __future__ import annotations

import pytest
import torch

from vmcr2.data import open_data
from vmcr2.train import recipe
from vmcr2.train._loop import Trainer

pytestmark = pytest.mark.gpu


def trainer(objective: str) -> Trainer:
    config = recipe("digits", objective=objective, device="cuda", augmentation="crop", crop_padding=1, epochs=4)
    made = Trainer(config, open_data("digits"), torch.device("cuda"))
    made.network.train()
    made.objective.train()
    made.latch()
    return made


def feed(made: Trainer, draw: int) -> None:
    generator = torch.Generator().manual_seed(draw)
    made.step.index.copy_(torch.randperm(1437, generator=generator)[: made.batch_size])
    made.step.draw.fill_(draw)
    made.step.rate.fill_(0.01 * (draw + 1))


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_the_captured_step_equals_the_eager_one(objective: str) -> None:
    eager, captured = trainer(objective), trainer(objective)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # warm-up steps are steps: both make them
        for draw in range(3):
            feed(captured, draw)
            captured.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for draw in range(3):
        feed(eager, draw)
        eager.step()
    for draw in range(3, 10):
        for made, go in ((eager, eager.step), (captured, graph.replay)):
            feed(made, draw)
            go()
    for a, b in zip(eager.network.parameters(), captured.network.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-2, atol=1e-3)
    assert torch.allclose(eager.step.total_loss, captured.step.total_loss, rtol=1e-3)


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_a_step_does_not_synchronise(objective: str) -> None:
    made = trainer(objective)
    for draw in range(2):
        feed(made, draw)
        made.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
