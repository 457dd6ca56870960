"""Theorem 1 and Proposition 1: an upper bound for every factorisation, tight at the SVD, with the right gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import reference
import torch
from cases import DOUBLE, relative
from hypothesis import given, seed as hypothesis_seed, settings, strategies as st
from seeds import SEED, randn
from torch import Tensor

from vmcr2.functional import variational_logdet, variational_spectral

Spectral = Callable[[Tensor], Tensor]

# Concave, non-decreasing, h(0) = 0. The first ones are strictly concave, so that the bound is strict off the SVD.
STRICT: dict[str, Spectral] = {
    "log1p": torch.log1p,
    "log1p(7x)": lambda x: torch.log1p(7 * x),
    "x/(1+x)": lambda x: x / (1 + x),
    "1-exp(-x)": lambda x: 1 - torch.exp(-x),
    "sqrt(x+.1)-sqrt(.1)": lambda x: (x + 0.1).sqrt() - math.sqrt(0.1),
    "atan": torch.atan,
}
KINKED: dict[str, Spectral] = {"x": lambda x: x, "min(x,1)": lambda x: x.clamp_max(1.0), "0": lambda x: 0 * x}
CONCAVE = STRICT | KINKED

# rows, columns, rank of X
SHAPES = [(5, 5, 5), (6, 4, 2), (3, 8, 3), (7, 7, 1), (1, 1, 1)]


def matrix(rows: int, columns: int, rank: int, seed: int = 0) -> Tensor:
    return randn(rows, rank, seed=seed) @ randn(rank, columns, seed=seed + 1)


def svd_factors(x: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """U S^½ and V S^½ with any number of columns ≥ rank X: zero columns fill up."""
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    keep = s > 1e-10 * s[0]
    u, s, v = u[:, keep], s[keep], vh.T[:, keep]
    assert columns >= len(s)
    pad = (0, columns - len(s))
    return torch.nn.functional.pad(u * s.sqrt(), pad), torch.nn.functional.pad(v * s.sqrt(), pad)


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CONCAVE)
def test_equality_at_the_svd(name: str, shape: tuple[int, int, int], extra: int) -> None:
    x = matrix(*shape)
    left, right = svd_factors(x, shape[2] + extra)
    assert relative(left @ right.T, x) < 1e-12
    value = variational_spectral(left, right, h=CONCAVE[name])
    assert value.item() == pytest.approx(reference.spectral(x, CONCAVE[name]).item(), rel=1e-9, abs=1e-12)


@hypothesis_seed(SEED)
@settings(max_examples=60, deadline=None, database=None)
@given(
    name=st.sampled_from(sorted(CONCAVE)),
    shape=st.sampled_from(SHAPES),
    extra=st.integers(0, 5),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_upper_bound_for_every_factorisation(
    name: str, shape: tuple[int, int, int], extra: int, seed: int, size: float
) -> None:
    h, rank = CONCAVE[name], shape[2]
    x = size * matrix(*shape, seed=seed)
    left, right = svd_factors(x, rank + extra)
    mix = randn(rank + extra, rank + extra, seed=seed + 2)
    left, right = left @ mix, torch.linalg.solve(mix, right.T).T  # U R and V R^{-T}
    assert relative(left @ right.T, x) < 1e-6
    value, exact = variational_spectral(left, right, h=h), reference.spectral(x, h)
    assert value.item() == pytest.approx(reference.variational_spectral(left, right, h).item(), rel=1e-12, abs=1e-14)
    assert value.item() >= exact.item() * (1 - 1e-7) - 1e-12


@pytest.mark.parametrize("name", STRICT)
def test_strictly_above_where_columns_are_not_orthogonal(name: str) -> None:
    x = matrix(5, 4, 3)
    left, right = svd_factors(x, 3)
    mix = torch.eye(3, dtype=DOUBLE)
    mix[0, 1] = 0.7
    value = variational_spectral(left @ mix, torch.linalg.solve(mix, right.T).T, h=STRICT[name])
    assert value.item() > reference.spectral(x, STRICT[name]).item() + 1e-3


@pytest.mark.parametrize("name", STRICT)
def test_splitting_a_column_in_two_raises_the_bound(name: str) -> None:
    left, right = svd_factors(matrix(5, 4, 3), 3)
    split = math.sqrt(0.5)
    double = [torch.cat([split * f, split * f[:, :1]], dim=1) for f in (left, right)]
    for f in double:
        f[:, 1:3] /= split
    assert relative(double[0] @ double[1].T, left @ right.T) < 1e-12
    tight = variational_spectral(left, right, h=STRICT[name])
    assert variational_spectral(*double, h=STRICT[name]).item() > tight.item() + 1e-3


@pytest.mark.parametrize("name", ["log1p", "x/(1+x)", "x"])
def test_minimised_over_the_factors_it_is_the_spectral_function(name: str) -> None:
    h, x = CONCAVE[name], 0.5 * matrix(5, 4, 3, seed=4)
    left, right = svd_factors(x, 3)
    mix = (torch.eye(3, dtype=DOUBLE) + 0.3 * randn(3, 3, seed=9)).requires_grad_()

    def bound() -> Tensor:
        return variational_spectral(left @ mix, torch.linalg.solve(mix, right.T).T, h=h)

    optimizer = torch.optim.LBFGS([mix], max_iter=100, tolerance_change=1e-13, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = bound()
        value.backward()
        return value

    start, exact = bound().item(), reference.spectral(x, h).item()
    optimizer.step(closure)
    assert start > exact + 1e-3  # the start was no solution
    assert bound().item() == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("name", CONCAVE)
def test_one_factor_means_both_the_same(name: str) -> None:
    u = randn(5, 7)
    alone, both = variational_spectral(u, h=CONCAVE[name]), variational_spectral(u, u, h=CONCAVE[name])
    assert alone.item() == pytest.approx(both.item(), rel=1e-13)
    assert alone.item() >= reference.spectral(u @ u.T, CONCAVE[name]).item() - 1e-12


@pytest.mark.parametrize("name", [*STRICT, "x", "min(x,1)"])
def test_gradient_of_theorem_1(name: str) -> None:
    left, right = randn(4, 6).requires_grad_(), randn(3, 6, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: variational_spectral(u, v, h=CONCAVE[name]), (left, right))
    assert torch.autograd.gradcheck(lambda u: variational_spectral(u, h=CONCAVE[name]), (left,))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize(("d", "n"), [(4, 4), (3, 9), (6, 2), (1, 1)])
def test_logdet_bound_and_equality(d: int, n: int, scale: float) -> None:
    u = randn(d, n)
    exact = reference.logdet(u @ u.T, scale).item()
    value = variational_logdet(u, scale).item()
    h = lambda x: torch.log1p(scale * x)  # noqa: E731
    assert value == pytest.approx(reference.variational_spectral(u, u, h).item(), rel=1e-12)
    assert value >= exact - 1e-12
    if d > 1 and n > 1:
        assert value > exact * (1 + 1e-6)  # random columns are not orthogonal
    ubar, s, _ = torch.linalg.svd(u, full_matrices=False)
    assert variational_logdet(ubar * s, scale).item() == pytest.approx(exact, rel=1e-10)
    orthogonal = torch.linalg.qr(randn(6, 3, seed=5)).Q * torch.tensor([2.0, 0.5, 1.0], dtype=DOUBLE)
    expected = reference.logdet(orthogonal @ orthogonal.T, scale).item()
    assert variational_logdet(orthogonal, scale).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("scale", [0.0, 0.3, 40.0])
def test_logdet_gradient_is_the_documented_one(scale: float) -> None:
    u = randn(4, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(variational_logdet(u, scale), u)
    expected = torch.stack([2 * scale * u[:, i] / (1 + scale * u[:, i].dot(u[:, i])) for i in range(6)], dim=1)
    assert relative(gradient, expected) < 1e-13
    assert torch.autograd.gradcheck(lambda x: variational_logdet(x, scale), (u,))


def test_scale_zero_is_exactly_zero() -> None:
    assert variational_logdet(randn(4, 6), 0.0).item() == 0.0
    assert variational_logdet(randn(4, 6), 0).item() == 0.0


def test_zero_columns_add_nothing_and_have_zero_gradient() -> None:
    u, v = randn(4, 5), randn(3, 5, seed=1)
    u[:, 1] = 0
    v[:, 3] = 0
    keep = [0, 2, 4]
    left, right = u.clone().requires_grad_(), v.clone().requires_grad_()
    value = variational_spectral(left, right, h=torch.log1p)
    expected = variational_spectral(u[:, keep], v[:, keep], h=torch.log1p)
    assert value.item() == pytest.approx(expected.item(), rel=1e-13)
    value.backward()
    assert left.grad is not None
    assert right.grad is not None
    assert left.grad.isfinite().all()
    assert right.grad.isfinite().all()
    # ‖U_i‖·‖V_i‖ has the sub-gradient 0 in the factor whose own column is zero, and in the other one too
    for gradient in (left.grad, right.grad):
        assert gradient[:, [1, 3]].abs().max().item() == 0.0
        assert (gradient[:, keep].abs().amax(0) > 1e-3).all()
    alone = u.clone().requires_grad_()
    variational_logdet(alone, 3.0).backward()
    assert alone.grad is not None
    assert alone.grad[:, 1].abs().max().item() == 0.0
    assert alone.grad.isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    u = torch.full((64, 2), 300.0, dtype=torch.float16)  # ‖U_i‖² = 5.76e6 overflows float16
    value = variational_logdet(u)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(2 * math.log1p(64 * 300.0**2), rel=1e-6)
    assert variational_spectral(u, randn(3, 2), h=torch.log1p).dtype == DOUBLE


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (torch.ones(3), None, r"left must be .*matrix.*\(3,\)"),
        (torch.ones(2, 3, 3), None, "left must be .*matrix"),
        (torch.ones(3, 3, dtype=torch.int64), None, "left must be .*floating-point.*int64"),
        ([[1.0]], None, "left must be .*list"),
        (torch.ones(3, 3), torch.ones(3), "right must be .*matrix"),
        (torch.ones(3, 3), torch.ones(3, 3, dtype=torch.int64), "right must be .*floating-point"),
        (torch.ones(3, 3), torch.ones(3, 4), "right has 4 columns and left 3"),
    ],
)
def test_wrong_factors(left: Any, right: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        variational_spectral(left, right, h=torch.log1p)


@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf])
def test_wrong_scale(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        variational_logdet(torch.ones(2, 2), scale)
