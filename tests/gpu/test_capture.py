"""On a CUDA device: captured whole in a graph, without a synchronisation, with the values of eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from cases import relative
from torch import Tensor

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import latch

pytestmark = pytest.mark.gpu

M, D, K = 512, 96, 20
Loss = MCR2Loss | VMCR2Loss

LOSSES: dict[str, Callable[..., Loss]] = {
    "MCR2": lambda **options: MCR2Loss(K, **options),
    "MCR2 with a memory": lambda **options: MCR2Loss(K, memory=1200, dim=D, **options),  # full in the third step
    "MCR2 with a soft memory": lambda **options: MCR2Loss(K, memory=1200, dim=D, soft_memory=True, **options),
    "VMCR2": lambda **options: VMCR2Loss(K, D, atoms_per_class=4, **options),
    "VMCR2 biased": lambda **options: VMCR2Loss(K, D, atoms_per_class=4, debias=False, **options),
    "VMCR2 flat": lambda **options: VMCR2Loss(K, D, atoms_per_class=4, codes="flat", codes_trace=8.0, **options),
}


@pytest.fixture(autouse=True)
def _full_float32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(M, D, generator=generator)
    return z.cuda(), torch.randint(0, K, (M,), generator=generator).cuda()


def capture(
    loss: Loss, z: Tensor, labels: Tensor, call: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The whole of loss, or of what ``call`` makes of it, and backward in one graph over the buffers z and labels."""
    call = call or loss
    saved = copy.deepcopy(loss.state_dict())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            z.grad = None
            call(z, labels).backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    z.grad = None
    with torch.cuda.graph(graph):
        value = call(z, labels)
        value.backward()
    loss.load_state_dict(saved)
    return graph, value


@pytest.mark.parametrize("name", LOSSES)
def test_a_captured_loss_equals_the_eager_one(name: str) -> None:
    eager = LOSSES[name]().cuda()
    if isinstance(eager, VMCR2Loss):
        eager.latch(*batch(9))
    captured = copy.deepcopy(eager)
    z, labels = batch()
    z.requires_grad_()
    graph, value = capture(captured, z, labels)
    for seed in range(4):
        fresh_z, fresh_labels = batch(seed)
        with torch.no_grad():
            z.copy_(fresh_z)
            labels.copy_(fresh_labels)
        graph.replay()
        leaf = fresh_z.requires_grad_()
        expected = eager(leaf, fresh_labels)
        expected.backward()
        assert value.item() == pytest.approx(expected.item(), rel=1e-4)
        assert z.grad is not None
        assert leaf.grad is not None
        assert relative(z.grad.cpu(), leaf.grad.cpu()) < 1e-3
        if isinstance(eager, VMCR2Loss):
            assert isinstance(captured, VMCR2Loss)
            assert relative(captured.codes.cpu(), eager.codes.cpu()) < 1e-3
            for one in (eager, captured):  # obeyed by the very next replay
                one.weight, one.batch_expansion, one.nu_dictionary, one.nu_codes = (
                    20.0 + seed,
                    0.1 * seed,
                    1.0 + seed,
                    4.0,
                )
        if isinstance(eager, MCR2Loss) and eager.memory:
            assert isinstance(captured, MCR2Loss)
            kept = "memory_memberships" if eager.soft_memory else "memory_labels"
            assert torch.equal(getattr(captured, kept), getattr(eager, kept))
            assert torch.equal(captured.memory_next, eager.memory_next)
            assert torch.allclose(captured.memory_features, eager.memory_features, atol=1e-6)
    assert not captured.fault
    with torch.no_grad():
        z[3, 5] = torch.nan
    graph.replay()
    assert captured.fault
    if isinstance(captured, MCR2Loss) and captured.memory:
        assert torch.isfinite(captured.memory_features).all()
    if isinstance(captured, VMCR2Loss):
        assert torch.isfinite(captured.dictionary).all()


def test_a_class_beyond_max_class_size_sets_the_flag() -> None:
    loss = MCR2Loss(K, max_class_size=40).cuda()
    z, _ = batch()
    labels = (torch.arange(M) % K).cuda()
    graph, _ = capture(loss, z.requires_grad_(), labels)
    graph.replay()
    assert not loss.fault
    labels.fill_(0)
    graph.replay()
    assert loss.fault


def test_capturing_before_latching_says_what_to_do() -> None:
    loss = VMCR2Loss(K, D, atoms_per_class=4).cuda()
    z, labels = batch()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="latch the loss before"), torch.cuda.graph(graph):
        loss(z.requires_grad_(), labels)


@pytest.mark.parametrize("name", LOSSES)
def test_without_validation_nothing_synchronises(name: str) -> None:
    loss = LOSSES[name](validate=False).cuda()
    z, labels = batch()
    loss(z.requires_grad_(), labels).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(z, labels).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", LOSSES)
def test_the_gpu_agrees_with_the_cpu(name: str) -> None:
    here = LOSSES[name]()
    there = LOSSES[name]().cuda()
    for seed in range(3):
        z, labels = batch(seed)
        on_gpu, on_cpu = z.requires_grad_(), z.detach().cpu().requires_grad_()
        there_value, here_value = there(on_gpu, labels), here(on_cpu, labels.cpu())
        there_value.backward()
        here_value.backward()
        assert there_value.item() == pytest.approx(here_value.item(), rel=1e-4)
        assert on_gpu.grad is not None
        assert on_cpu.grad is not None
        assert relative(on_gpu.grad.cpu(), on_cpu.grad) < 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_autocast_changes_nothing(name: str, dtype: torch.dtype) -> None:
    loss = LOSSES[name]().cuda()
    z, labels = batch()
    loss(z.requires_grad_(), labels)
    loss.eval()
    with torch.autocast("cuda", dtype=dtype):
        inside = loss(z, labels)
    assert inside.item() == loss(z, labels).item()


def test_latching_and_classifying_on_the_gpu() -> None:
    z, labels = batch()
    (dictionary, codes), (expected, expected_codes) = (
        latch(z.to(device), labels.to(device), K, atoms_per_class=4) for device in ("cuda", "cpu")
    )
    assert relative(codes.cpu(), expected_codes) < 1e-3
    for j in range(K):
        assert (
            relative(((dictionary * codes[:, j]) @ dictionary.T).cpu(), (expected * expected_codes[:, j]) @ expected.T)
            < 2e-2
        )
    classifier = NearestSubspace().fit(z, labels)
    assert torch.equal(classifier.predict(z).cpu(), NearestSubspace().fit(z.cpu(), labels.cpu()).predict(z.cpu()))


def test_latching_without_validation_drops_nothing() -> None:
    """Batches sorted by class overflow any fixed room per class: latching synchronises anyway and needs none."""
    z, _ = batch()
    labels = (torch.arange(M) * K // M).cuda()
    loss = VMCR2Loss(K, D, atoms_per_class=D, validate=False).cuda()
    loss.latch(list(zip(z.split(64), labels.split(64), strict=True)))
    assert not loss.fault
    assert torch.allclose(loss.codes.sum(0).cpu(), torch.ones(K), atol=1e-3)  # unit features: all of the trace
    loss.latch(z, labels)
    assert torch.allclose(loss.codes.sum(0).cpu(), torch.ones(K), atol=1e-3)


def test_compiled_by_inductor_with_the_full_graph() -> None:
    torch.compiler.reset()
    loss = VMCR2Loss(K, D, atoms_per_class=4).cuda()
    z, labels = batch()
    loss.latch(z, labels)
    twin = copy.deepcopy(loss)
    compiled = torch.compile(twin, fullgraph=True)
    for seed in range(2):
        leaf = batch(seed)[0].requires_grad_()
        copy_ = leaf.detach().clone().requires_grad_()
        expected, value = loss(leaf, labels), compiled(copy_, labels)
        expected.backward()
        value.backward()
        assert value.item() == pytest.approx(expected.item(), rel=1e-4)
        assert leaf.grad is not None
        assert copy_.grad is not None
        assert relative(copy_.grad.cpu(), leaf.grad.cpu()) < 1e-3
