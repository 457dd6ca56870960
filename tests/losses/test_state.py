"""What a review found: states and settings that people bring about, and must not be silently wrong."""

from __future__ import annotations

import pytest
import torch
from cases import DOUBLE, relative
from seeds import seeded
from torch import Tensor

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import (
    latch,
    latch_batches,
    mismatch,
    normalize_rows,
    rate_reduction,
    variational_step,
)

Z = normalize_rows(torch.randn(40, 12, generator=seeded(0)))
Y = torch.arange(40) % 4


def test_moving_to_where_it_is_keeps_the_scalars_that_a_graph_may_read() -> None:
    loss = VMCR2Loss(4, 12, atoms_per_class=2)
    before = loss.scalars._mirror.data_ptr()
    loss.to("cpu").float().double()
    assert loss.scalars._mirror.data_ptr() == before
    loss.weight = 7.0
    assert loss.scalars.device("weight", DOUBLE).item() == 7.0


@pytest.mark.parametrize("name", ["weight", "batch_expansion", "nu_dictionary", "nu_codes"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_scalars_are_checked_by_the_constructor_too(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        VMCR2Loss(4, 12, atoms_per_class=2, **{name: value})
    loss = VMCR2Loss(4, 12, atoms_per_class=2)
    with pytest.raises(ValueError, match=f"{name} must be"):
        setattr(loss, name, value)


def test_missing_scalars_are_errors() -> None:
    with pytest.raises(ValueError, match="batch_expansion must be"):
        VMCR2Loss(4, 12, atoms_per_class=2, batch_expansion=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="eps_sq must be"):
        MCR2Loss(4, eps_sq=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nu_codes must be"):
        variational_step(Z, Y, torch.eye(12)[:, :4], torch.eye(4), weight=1.0, nu_codes=-1.0)


def test_a_low_default_dtype_does_not_reach_the_dictionary() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss = VMCR2Loss(4, 12, atoms_per_class=2)
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss.dictionary.dtype == torch.float32


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("eps_sq", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(("m", "d", "rank"), [(200, 64, 3), (40, 64, 3), (30, 64, 30)])
def test_float32_gradients_survive_a_small_precision(m: int, d: int, rank: int, eps_sq: float, soft: bool) -> None:
    z = normalize_rows(torch.randn(m, rank, dtype=DOUBLE) @ torch.randn(rank, d, dtype=DOUBLE)).float()
    labels: Tensor = torch.softmax(torch.randn(m, 3), 1) if soft else torch.arange(m) % 3
    single, double = z.clone().requires_grad_(), z.double().requires_grad_()
    value = rate_reduction(single, labels, 3, eps_sq=eps_sq)
    expected = rate_reduction(double, labels.double() if soft else labels, 3, eps_sq=eps_sq)
    for got, wanted in zip(value[:2], expected[:2], strict=True):  # ΔR itself is a small difference of the two
        assert got.item() == pytest.approx(wanted.item(), rel=1e-3)
        (gradient,), (target,) = torch.autograd.grad(got, single), torch.autograd.grad(wanted, double)
        # below that, d/ε² times the rounding of a float32 feature exceeds 1: gradients are of the rounding itself
        assert eps_sq < 1e-4 or relative(gradient, target) < 2e-2


def test_memberships_in_bfloat16_are_made_to_sum_to_one() -> None:
    soft = torch.softmax(3 * torch.randn(40, 4), 1)
    coarse = rate_reduction(Z, soft.bfloat16()).delta
    expected = rate_reduction(Z, soft.bfloat16().float() / soft.bfloat16().float().sum(1, keepdim=True)).delta
    assert coarse.item() == pytest.approx(expected.item(), rel=1e-5)


class OnceOnly:
    """Not an iterator itself, but every iteration goes on with the same one."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.iterator = iter(batches)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return self.iterator


def test_batches_that_end_after_one_reading() -> None:
    batches = [(Z[i : i + 10], Y[i : i + 10]) for i in range(0, 40, 10)]
    _, expected = latch(Z, Y, 4, atoms_per_class=1)
    _, codes = latch_batches(OnceOnly(batches), 4, atoms_per_class=1)  # one pass: all of it is used
    assert relative(codes, expected) < 1e-3
    with pytest.raises(ValueError, match="other samples when read again"):
        latch_batches(OnceOnly(batches), 4, atoms_per_class=1, budget=0)


def test_dictionary_and_codes_are_looked_at() -> None:
    atoms, codes = torch.eye(12)[:, :4], torch.eye(4)
    with pytest.raises(ValueError, match="codes must be finite and not negative"):
        mismatch(Z, Y, atoms, -codes)
    with pytest.raises(ValueError, match="dictionary has NaN"):
        mismatch(Z, Y, atoms * torch.nan, codes)
    with pytest.raises(ValueError, match="dictionary must be a floating-point tensor"):
        mismatch(Z, Y, atoms.numpy(), codes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dictionary must be \(d, q\)"):
        mismatch(Z, Y, atoms, codes[:3])
    with pytest.raises(ValueError, match="labels must be a tensor"):
        VMCR2Loss(4, 12, atoms_per_class=1).latch(Z, Y.tolist())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="z must be a tensor if labels are given"):
        VMCR2Loss(4, 12, atoms_per_class=1).latch(Z.numpy(), Y)  # type: ignore[arg-type]


def test_the_classifier_keeps_its_precision_and_leaves_inference_mode() -> None:
    expected = NearestSubspace(4).partial_fit(Z, Y).predict(Z)
    halved = NearestSubspace(4).partial_fit(Z, Y).half()
    assert torch.equal(halved.predict(Z), expected)
    classifier = NearestSubspace(4)
    with torch.inference_mode():
        classifier.partial_fit(Z[:20], Y[:20])
    classifier.partial_fit(Z[20:], Y[20:])
    assert torch.equal(classifier.predict(Z), expected)
    assert "4 subspaces of R^12" in repr(classifier)


def test_subnormal_features_have_a_finite_gradient() -> None:
    z = (Z * 1e-40).requires_grad_()
    (gradient,) = torch.autograd.grad(MCR2Loss(4)(z, Y), z)
    assert torch.isfinite(gradient).all()
