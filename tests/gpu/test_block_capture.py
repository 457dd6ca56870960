"""Block mode on a CUDA device: captured in a graph, without a synchronisation, with the values of eager mode."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from cases import relative
from test_capture import capture
from torch import Tensor

from vmcr2 import VMCR2Loss
from vmcr2.runs import Run, fit, recipe

pytestmark = pytest.mark.gpu

K, D, S, P, EACH = 1000, 96, 3, 32, 6


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """EACH samples of each of P classes, or of fewer: then places are left over."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randperm(K, generator=generator)[: P - seed % 3]
    labels = classes[torch.arange(P * EACH) % len(classes)]
    return torch.randn(P * EACH, D, generator=generator).cuda(), labels.cuda()


def made(**options: object) -> VMCR2Loss:
    """With room for P classes of up to 8 samples."""
    settings = {"max_classes": P, "max_class_size": 8, "self_latch": False, **options}
    loss = VMCR2Loss(K, D, atoms_per_class=S, block=True, **settings).cuda()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(99)
    z = torch.randn(10 * K, D, generator=generator).cuda()
    if not options.get("self_latch"):
        loss.latch(z, torch.arange(10 * K).cuda() % K)
    return loss


def captured_step(loss: VMCR2Loss, z: Tensor, labels: Tensor) -> torch.cuda.CUDAGraph:
    """Look-ahead, step and gradient in one graph over the buffers z and labels. The warm-up leaves no trace."""
    return capture(loss, z, labels, lambda z, labels: loss.surrogate(z, labels, loss.look_ahead(labels)))[0]


@pytest.mark.parametrize("self_latch", [False, True])
def test_a_hundred_captured_steps_are_those_of_eager_mode(self_latch: bool) -> None:
    """Gradients, Γ, A and the running sum; eager mode checks values and has shapes that depend on them."""
    eager = made(self_latch=self_latch)
    if self_latch:
        eager(*batch(1000))  # the first step is not captured
    captured = copy.deepcopy(eager)
    z, labels = batch(0)
    z.requires_grad_()
    graph = captured_step(captured, z, labels)
    for seed in range(100):
        fresh, fresh_labels = batch(seed)
        with torch.no_grad():
            z.copy_(fresh)
            labels.copy_(fresh_labels)
        graph.replay()
        leaf = fresh.requires_grad_()
        eager.surrogate(leaf, fresh_labels).backward()
        assert z.grad is not None
        assert leaf.grad is not None
        assert relative(z.grad.cpu(), leaf.grad.cpu()) < (2e-2 if self_latch else 1e-3)
    assert not captured.fault
    assert relative(captured.running_sum.cpu(), eager.running_sum.cpu()) < 1e-2
    # models are compared: atoms may differ in sign
    models = [
        torch.einsum("ksd,ks,kse->kde", loss.dictionary, loss.codes, loss.dictionary) for loss in (eager, captured)
    ]
    assert relative(models[1].cpu(), models[0].cpu()) < (5e-2 if self_latch else 1e-3)
    assert not self_latch or captured.calls == eager.calls == 101


def test_the_running_sum_is_computed_again_between_two_replays() -> None:
    loss = made()
    z, labels = batch(0)
    graph = captured_step(loss, z.requires_grad_(), labels)
    for _ in range(50):
        graph.replay()
    assert loss.since_refresh == 50  # type: ignore[attr-defined]
    drifted = loss.running_sum.clone()
    loss.refresh()
    assert loss.since_refresh == 0  # type: ignore[attr-defined]
    assert 0 < relative(drifted.cpu(), loss.running_sum.cpu()) < 1e-4
    graph.replay()
    assert not loss.fault


def test_more_classes_than_there_is_room_for_and_nan_set_the_flag() -> None:
    loss = made()
    z, labels = batch(0)
    graph = captured_step(loss, z.requires_grad_(), labels)
    graph.replay()
    assert not loss.fault
    labels.copy_(torch.arange(P * EACH) // 2)
    graph.replay()
    assert loss.fault
    loss.fault.zero_()
    labels.copy_(batch(0)[1])
    before = [part.clone() for part in (loss.dictionary, loss.codes, loss.running_sum)]
    with torch.no_grad():
        z[3, 5] = torch.nan
    graph.replay()
    assert loss.fault
    for old, new in zip(before, (loss.dictionary, loss.codes, loss.running_sum), strict=True):
        assert torch.isfinite(new).all()
        assert relative(new.cpu(), old.cpu()) < 1e-5


def test_without_validation_nothing_synchronises() -> None:
    loss = made(validate=False)
    z, labels = batch(0)
    loss.surrogate(z.requires_grad_(), labels).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            loss.surrogate(z, labels, loss.look_ahead(labels)).backward()
            loss(z, labels).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not loss.fault


@pytest.mark.parametrize("latch_every", [50, 0])
def test_a_run_on_the_gpu_is_that_of_a_cpu(latch_every: int, tmp_path: Path) -> None:
    def trained(device: str) -> Run:
        settings = {"epochs": 5, "precision": "float32", "block": True, "latch_every": latch_every}
        config = recipe("digits", objective="vmcr2", **settings)
        return fit(config.replace(device=device), out=tmp_path / device)

    on_cpu, on_gpu = trained("cpu"), trained("cuda")
    assert on_gpu.summary["train_delta_r"] == pytest.approx(on_cpu.summary["train_delta_r"], rel=0.05)
