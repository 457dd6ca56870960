"""On a CUDA device: a captured loss latches itself from recent features as in eager mode, without waiting."""

from __future__ import annotations

import copy

import pytest
import torch
from cases import relative
from test_capture import K, batch, capture

from vmcr2 import VMCR2Loss

pytestmark = pytest.mark.gpu

D, S = 96, 4


def made(**options: object) -> VMCR2Loss:
    return VMCR2Loss(K, D, atoms_per_class=S, **options).cuda()  # type: ignore[arg-type]


def test_a_captured_step_latches_when_it_is_due() -> None:
    """Calls 1 to 9: 1, 2, 4 and 8 are due. Models are compared: atoms may differ in sign and in order."""
    eager = made()
    eager(*batch(0))  # the first step is not captured
    captured = copy.deepcopy(eager)
    z, labels = batch(1)
    z.requires_grad_()
    graph, value = capture(captured, z, labels)
    for seed in range(1, 10):
        fresh, fresh_labels = batch(seed)
        with torch.no_grad():
            z.copy_(fresh)
            labels.copy_(fresh_labels)
        graph.replay()
        expected = eager(fresh.requires_grad_(), fresh_labels)
        assert captured.calls.item() == eager.calls.item() == seed + 1
        assert torch.equal(captured.memory_labels, eager.memory_labels)
        assert value.item() == pytest.approx(expected.item(), rel=2e-3)
        models = [(loss.dictionary * loss.codes.sum(1)) @ loss.dictionary.T for loss in (eager, captured)]
        assert relative(models[1].cpu(), models[0].cpu()) < 1e-2
    assert not captured.fault


def test_a_class_that_appears_is_latched_in_the_graph() -> None:
    loss = made(nu_dictionary=0.0, nu_codes=0.0)
    z, labels = batch(0)
    early = labels.clamp_max(K - 2)
    loss(z, early)
    z.requires_grad_()
    graph, _ = capture(loss, z, early)
    for _ in range(5):
        graph.replay()
    assert loss.codes[:, -1].max() == 0
    early.copy_(labels)
    graph.replay()
    assert loss.codes[:, -1].max() > 0


def test_the_caller_s_latching_ends_it_in_the_graph_too() -> None:
    loss = made(nu_dictionary=0.0, nu_codes=0.0)
    z, labels = batch(0)
    loss(z, labels)
    z.requires_grad_()
    graph, _ = capture(loss, z, labels)
    graph.replay()
    loss.latch(*batch(9))
    before = loss.dictionary.clone()
    for _ in range(8):
        graph.replay()
    assert loss.calls == -1
    assert relative(loss.dictionary.cpu(), before.cpu()) < 1e-4


@pytest.mark.parametrize("surrogate", [False, True])
def test_without_validation_it_never_waits_for_the_device(surrogate: bool) -> None:
    loss = made(validate=False)
    z, labels = batch(0)
    loss(z, labels)
    z.requires_grad_()
    call = loss.surrogate if surrogate else loss
    call(z, labels).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(8):
            call(z, labels).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not loss.fault


def test_the_first_call_must_not_be_captured() -> None:
    loss = made()
    z, labels = batch(0)
    z.requires_grad_()
    with pytest.raises(RuntimeError, match="take one step before"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        loss(z, labels)
