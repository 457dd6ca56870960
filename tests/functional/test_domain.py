"""The ends of the stated domain: beyond them a ``ValueError`` with a sentence, up to them the right value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from seeds import seeded
from torch import Tensor

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import (
    class_subspaces,
    coding_rate,
    diagnose,
    latch,
    maximal_rate_reduction,
    mismatch,
    nearest_subspace,
    normalize_rows,
    principal_angles,
    rate_reduction,
    variational_logdet,
    variational_spectral,
    variational_step,
    variational_terms,
)
from vmcr2.losses import CrossEntropyLoss

Z = torch.nn.functional.normalize(torch.randn(12, 4, generator=seeded(0)), dim=1)
Y = torch.arange(12) % 3
ATOMS, CODES = latch(Z, Y, 3, atoms_per_class=1)

EPS_SQ: dict[str, Callable[[float], object]] = {
    "coding_rate": lambda e: coding_rate(Z, eps_sq=e),
    "rate_reduction": lambda e: rate_reduction(Z, Y, eps_sq=e),
    "maximal_rate_reduction": lambda e: maximal_rate_reduction(4, 3, eps_sq=e),
    "diagnose": lambda e: diagnose(1.0, 1.0, num_classes=3, dim=4, eps_sq=e),
    "variational_terms": lambda e: variational_terms(Z, Y, ATOMS, CODES, weight=1.0, eps_sq=e),
    "variational_step": lambda e: variational_step(Z, Y, ATOMS, CODES, weight=1.0, eps_sq=e),
    "MCR2Loss": lambda e: MCR2Loss(3, eps_sq=e)(Z, Y),
    "VMCR2Loss": lambda e: VMCR2Loss(3, 4, atoms_per_class=1, eps_sq=e)(Z, Y),
}


@pytest.mark.parametrize("name", EPS_SQ)
def test_eps_sq(name: str) -> None:
    for wrong in (1e-300, 9e-13, 1.1e12, 1e300):
        with pytest.raises(ValueError, match=r"eps_sq must lie between 1e-12 and 1e\+12, got"):
            EPS_SQ[name](wrong)
    # R^v in float32 may ask for a larger one or float64 below 1e-4: Γ Diag(s) Γᵀ is only symmetric up to rounding
    for right in (1e-4 if name in ("VMCR2Loss", "variational_step", "variational_terms") else 1e-12, 1e12):
        EPS_SQ[name](right)
    with pytest.raises(ValueError, match="eps_sq must be a finite number above 0"):
        EPS_SQ[name](10**400)


def test_a_very_small_eps_sq_gives_the_value_of_float64() -> None:
    for eps_sq in (1e-4, 1e-12):
        exact = rate_reduction(Z.double(), Y, 3, eps_sq=eps_sq)
        for one, other in zip(rate_reduction(Z, Y, 3, eps_sq=eps_sq), exact, strict=True):
            assert one.item() == pytest.approx(other.item(), abs=1e-4 * exact.expansion.item())


@pytest.mark.parametrize(
    "name", ["scale", "weight", "mu", "batch_expansion", "nu_dictionary", "nu_codes", "codes_trace", "max_gradient"]
)
def test_the_numbers_of_a_loss(name: str) -> None:
    def built(value: float) -> VMCR2Loss:
        return VMCR2Loss(3, 4, atoms_per_class=1, **{name: value})

    for wrong in (1e300, 1.1e12):
        with pytest.raises(ValueError, match=rf"{name} must .*1e\+12, got"):
            built(wrong)
    if name in ("weight", "batch_expansion", "nu_dictionary"):
        with pytest.raises(ValueError, match=rf"{name} must .*1e\+12, got"):
            setattr(built(1.0), name, 1e300)
    z = Z.clone().requires_grad_()
    value = built(1e4)(z, Y)
    value.backward()
    assert z.grad is not None
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(z.grad).all())


ON_FEATURES: dict[str, Callable[[Tensor], Any]] = {
    "coding_rate": coding_rate,
    "rate_reduction": lambda z: rate_reduction(z, Y, 3),
    "mismatch": lambda z: mismatch(z, Y, ATOMS, CODES),
    "latch": lambda z: latch(z, Y, 3, atoms_per_class=1),
    "class_subspaces": lambda z: class_subspaces(z, Y),
    "nearest_subspace": lambda z: nearest_subspace(z, torch.eye(4).unsqueeze(2)),
    "MCR2Loss": lambda z: MCR2Loss(3)(z, Y),
    "VMCR2Loss": lambda z: VMCR2Loss(3, 4, atoms_per_class=1)(z, Y),
    "NearestSubspace": lambda z: NearestSubspace().fit(z, Y),
    "CrossEntropyLoss": lambda z: CrossEntropyLoss(4, 3)(z, Y),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("name", ON_FEATURES)
def test_tensors_that_hold_no_numbers_to_compute_with(name: str) -> None:
    call = ON_FEATURES[name]
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64):
        with pytest.raises(ValueError, match=r"z must be floating point of 16 to 64 bits, got .*: pass z\.float\(\)"):
            call(Z.to(dtype))
    for sparse in (Z.to_sparse(), Z.to_sparse_csr(), torch.nested.nested_tensor([Z, Z])):
        with pytest.raises(ValueError, match=r"z is a sparse or nested tensor: pass z\.to_dense\(\)"):
            call(sparse)
    with pytest.raises(ValueError, match="z is on the device meta"):
        call(Z.to("meta"))


def test_labels_that_hold_no_numbers_to_compute_with() -> None:
    soft = torch.nn.functional.one_hot(Y, 3).float()
    with pytest.raises(ValueError, match=r"labels is a sparse or nested tensor: pass labels\.to_dense\(\)"):
        rate_reduction(Z, soft.to_sparse())
    with pytest.raises(ValueError, match="labels must be floating point of 16 to 64 bits"):
        rate_reduction(Z, soft.to(torch.float8_e4m3fn))
    with pytest.raises(ValueError, match="labels has the class 1000000000000: give num_classes"):
        rate_reduction(Z, torch.where(Y == 2, 10**12, Y))
    with pytest.raises(ValueError, match="dictionary must be floating point"):
        mismatch(Z, Y, ATOMS.to(torch.float8_e4m3fn), CODES)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("size", [1.1754944e-38, 5e-39, 1e-45, 1e-33])
def test_rows_below_the_smallest_normal_number_count_as_zero(dim: int, size: float) -> None:
    labels = torch.tensor([0, 1, 0, 1])
    for loss in (
        MCR2Loss(2, max_gradient=None),
        VMCR2Loss(2, dim, atoms_per_class=1, max_gradient=None),
        VMCR2Loss(2, dim, atoms_per_class=1),
    ):
        z = torch.full((4, dim), size).requires_grad_()
        value = loss(z, labels)
        value.backward()
        assert value.item() == 0
        assert z.grad is not None
        assert torch.equal(z.grad, torch.zeros(4, dim))
    assert torch.equal(normalize_rows(torch.full((1, dim), size)), torch.zeros(1, dim))
    unit = normalize_rows(torch.full((1, dim), 2e-33))
    assert unit.norm().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_normalised_in_float32(dtype: torch.dtype) -> None:
    for size in (6e4, 1e-7):
        z = (size * Z).to(dtype)
        expected = normalize_rows(z.double())
        assert (normalize_rows(z).double() - expected).abs().max().item() < 0.01
        value = MCR2Loss(3).eval()(z, Y).item()
        assert value == pytest.approx(MCR2Loss(3).eval()(z.double(), Y).item(), rel=1e-4, abs=1e-5)


UNNORMALISED: dict[str, Callable[[Tensor], Any]] = {
    "mismatch": lambda z: mismatch(z, Y, ATOMS, CODES),
    "variational_terms": lambda z: variational_terms(z, Y, ATOMS, CODES, weight=20.0),
    "variational_step": lambda z: variational_step(z, Y, ATOMS, CODES, weight=20.0),
    "VMCR2Loss": lambda z: VMCR2Loss(3, 4, atoms_per_class=1, normalize=False)(z, Y),
    "VMCR2Loss.latch": lambda z: VMCR2Loss(3, 4, atoms_per_class=1, normalize=False).latch(z, Y),
    "VMCR2Loss.surrogate": lambda z: VMCR2Loss(3, 4, atoms_per_class=1, normalize=False).surrogate(z, Y),
    "VMCR2Loss in eval mode": lambda z: VMCR2Loss(3, 4, atoms_per_class=1, normalize=False).eval()(z, Y),
}


@pytest.mark.parametrize("name", UNNORMALISED)
def test_rows_that_are_too_long_for_the_mismatch(name: str) -> None:
    with pytest.raises(ValueError, match=r"row longer than 1e\+06.*see row 0 and 11 more: scale the rows to unit"):
        UNNORMALISED[name](4e9 * Z)
    with pytest.raises(ValueError, match=r"float16 with a row longer than 16.*or pass z\.float\(\)"):
        UNNORMALISED[name]((6e4 * Z).half())
    UNNORMALISED[name](1e3 * Z)


def test_numbers_that_are_too_large() -> None:
    for call in (coding_rate, lambda z: MCR2Loss(3)(z, Y), lambda z: latch(z, Y, 3, atoms_per_class=1)):
        with pytest.raises(ValueError, match=r"z has a number above 1e\+15 in row 0 and 11 more: scale z"):
            call(1e18 * Z.sign())
        with pytest.raises(ValueError, match="z has NaN or inf in row 3"):
            call(torch.where(torch.arange(12).unsqueeze(1) == 3, torch.inf, Z).half())
    assert coding_rate(1e14 * Z).item() == pytest.approx(coding_rate(1e14 * Z.double()).item(), rel=1e-5)
    with pytest.raises(ValueError, match="left has NaN, inf or a number above"):
        variational_spectral(Z * torch.nan, h=torch.log1p)
    with pytest.raises(ValueError, match="the result has NaN, inf"):
        variational_logdet(1e14 * Z, 1e12)
    with pytest.raises(ValueError, match="bases has NaN, inf or a number above 1000"):
        principal_angles(torch.full((2, 3, 1), torch.nan))
    with pytest.raises(ValueError, match="num_classes must be at least 1"):
        maximal_rate_reduction(4, 0)
    with pytest.raises(ValueError, match=r"the result is not finite in torch\.float32: make z, dictionary, codes"):
        mismatch(Z, Y, ATOMS, 1e25 * CODES)
