"""What every loss must keep, whatever its settings: one table of losses × properties."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from cases import DOUBLE, relative
from seeds import seeded
from torch import Tensor

from vmcr2 import MCR2Loss, VMCR2Loss

M, D, K = 40, 12, 4
Loss = MCR2Loss | VMCR2Loss


def variational(**options: object) -> Callable[[], VMCR2Loss]:
    return lambda: VMCR2Loss(K, D, atoms_per_class=3, **options)  # type: ignore[arg-type]


LOSSES: dict[str, Callable[[], Loss]] = {
    "MCR2": lambda: MCR2Loss(K),
    "MCR2 with a memory": lambda: MCR2Loss(K, memory=64, dim=D),  # a batch and a part of another
    "VMCR2": variational(weight=5.0),
    "VMCR2 of the paper": variational(mu=1.0, batch_expansion=0.0, scale=1.0, debias=False),
    "VMCR2 flat": variational(codes="flat", codes_trace=4.0),
    "VMCR2 with focus": variational(focus=10.0),
    "VMCR2 in blocks": variational(block=True, weight=5.0),
    "VMCR2 in blocks, with focus": variational(block=True, focus=10.0),
    "VMCR2 in blocks, self-latching": lambda: self_latching(block=True),
}


def self_latching(**options: object) -> VMCR2Loss:
    """After some steps, and before those that are not due."""
    loss = variational(**options)()
    for seed in range(5, 9):
        loss(*batch(seed=seed))
    return loss


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> Loss:
    made = LOSSES[request.param]()
    if isinstance(made, VMCR2Loss) and not made.latched:
        made.latch(*batch(seed=9))
    return made.eval()


def batch(dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    return torch.randn(M, D, generator=generator, dtype=DOUBLE).to(dtype), torch.randint(
        0, K, (M,), generator=generator
    )


def test_gradcheck_in_eval_mode(loss: Loss) -> None:
    z, labels = batch(DOUBLE)
    z, labels = z[:10], labels[:10]
    torch.autograd.gradcheck(lambda x: loss.double()(x, labels), (z.requires_grad_(),))


def test_the_value_is_the_sum_of_its_terms(loss: Loss) -> None:
    z, labels = batch()
    terms = loss.terms(z, labels)
    if isinstance(loss, MCR2Loss):
        expected = -(terms.expansion - terms.compression)
    else:
        expected = -loss.scale * (terms.objective + loss.batch_expansion * terms.expansion)
    assert loss(z, labels).item() == pytest.approx(expected.item(), rel=1e-6)


def test_descending_the_gradient_lowers_the_loss(loss: Loss) -> None:
    z, labels = batch()
    for seed in range(3):
        z = batch(seed=seed)[0].requires_grad_()
        before = loss(z, labels)
        (gradient,) = torch.autograd.grad(before, z)
        assert loss(z - 0.01 * gradient / gradient.norm(), labels) < before


def test_invariance_to_the_length_of_features(loss: Loss) -> None:
    z, labels = batch()
    scale = torch.linspace(0.1, 10, M).unsqueeze(1)
    assert loss(scale * z, labels).item() == pytest.approx(loss(z, labels).item(), rel=1e-5)


def test_invariance_to_the_order_of_samples(loss: Loss) -> None:
    z, labels = batch()
    order = torch.randperm(M)
    assert loss(z[order], labels[order]).item() == pytest.approx(loss(z, labels).item(), rel=1e-5)


def test_one_hot_memberships_equal_labels(loss: Loss) -> None:
    z, labels = batch(DOUBLE)
    soft = torch.nn.functional.one_hot(labels, K).double()
    if "block=True" in repr(loss):
        pytest.skip("takes integer labels only, and says so")
    assert loss.double()(z, soft).item() == pytest.approx(loss(z, labels).item(), rel=1e-10)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_small_batches_with_absent_and_single_classes(loss: Loss, size: int) -> None:
    z, labels = batch()
    z = z[:size].requires_grad_()
    value = loss.train()(z, labels[:size])
    (gradient,) = torch.autograd.grad(value, z)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(loss: Loss, dtype: torch.dtype) -> None:
    z, labels = batch()
    with torch.autocast("cpu", dtype=dtype):
        inside = loss(z, labels)
    assert inside.dtype == torch.float32
    assert inside.item() == loss(z, labels).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_precision_is_computed_in_at_least_float32(loss: Loss, dtype: torch.dtype) -> None:
    z, labels = batch()
    half = z.to(dtype).requires_grad_()
    value = loss(half, labels)
    value.backward()
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert half.grad is not None
    assert half.grad.dtype == dtype
    assert value.item() == pytest.approx(loss(half.detach().float(), labels).item(), rel=1e-5)


def test_under_compile_with_the_full_graph(loss: Loss) -> None:
    torch.compiler.reset()  # the recompilations of one parameter must not count against the next
    loss.train()
    twin = copy.deepcopy(loss)
    compiled = torch.compile(twin, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        z, labels = batch(seed=seed)
        eager, traced = z.clone().requires_grad_(), z.clone().requires_grad_()
        expected, value = loss(eager, labels), compiled(traced, labels)
        expected.backward()
        value.backward()
        assert value.item() == pytest.approx(expected.item(), rel=1e-5)
        assert eager.grad is not None
        assert traced.grad is not None
        assert relative(traced.grad, eager.grad) < 1e-4
        if isinstance(loss, VMCR2Loss):  # assigned between steps, obeyed by the compiled one
            loss.batch_expansion = twin.batch_expansion = 0.1 * (seed + 1)
            loss.nu_codes = twin.nu_codes = 1.0 + seed
    assert not twin.fault
    compiled(torch.full((M, D), torch.nan, requires_grad=True), labels)  # not another graph
    assert twin.fault


def test_a_class_beyond_max_class_size_sets_the_flag_while_compiled() -> None:
    loss = MCR2Loss(K, max_class_size=12)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    z, _ = batch()
    even = torch.arange(M) % K  # 10 of each
    assert compiled(z, even).item() == pytest.approx(loss(z, even).item(), rel=1e-5)
    assert not loss.fault
    compiled(z, torch.zeros(M, dtype=torch.long))
    assert loss.fault


def test_repr_names_the_settings(loss: Loss) -> None:
    assert "num_classes=4" in repr(loss)
    assert "eps_sq=0.5" in repr(loss)
