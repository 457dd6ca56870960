"""Precision that the caller cannot take away, inverses by products, orthonormal bases by Cholesky factors."""

from __future__ import annotations

import pytest
import torch
from cases import DOUBLE, relative
from seeds import seeded
from torch import Tensor

from vmcr2.functional._eigen import cholesky_qr
from vmcr2.functional._linalg import (
    Guard,
    cholesky_inverse,
    factor_identity_plus,
    full_precision,
    inverse_identity_plus,
    newton_inverse,
    products_as_asked,
)


@full_precision
def precisions(_: Tensor) -> tuple[str, str, str]:
    before = torch.get_float32_matmul_precision()
    with products_as_asked():
        inside = torch.get_float32_matmul_precision()
    return before, inside, torch.get_float32_matmul_precision()


@pytest.mark.parametrize("asked", ["highest", "high", "medium"])
def test_products_under_a_log_det_are_never_in_few_bits(asked: str) -> None:
    torch.set_float32_matmul_precision(asked)
    try:
        assert precisions(torch.ones(1)) == ("highest", asked, "highest")
        assert full_precision(precisions)(torch.ones(1)) == ("highest", asked, "highest"), "nested"
        assert torch.get_float32_matmul_precision() == asked
    finally:
        torch.set_float32_matmul_precision("highest")


def test_precision_is_put_back_after_an_error() -> None:
    @full_precision
    def broken(_: Tensor) -> None:
        raise ArithmeticError

    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ArithmeticError):
            broken(torch.ones(1))
        assert torch.get_float32_matmul_precision() == "high"
        assert precisions(torch.ones(1))[1] == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def features(spread: float) -> Tensor:
    generator = seeded(0)
    common = torch.randn(1, 60, generator=generator, dtype=DOUBLE)
    z = common + spread * torch.randn(200, 60, generator=generator, dtype=DOUBLE)
    return torch.nn.functional.normalize(z, dim=1)


@pytest.mark.parametrize("spread", [100.0, 1.0, 0.1, 0.0])
@pytest.mark.parametrize("eps_sq", [5.0, 0.5, 0.01])
def test_newton_from_spread_to_collapsed(spread: float, eps_sq: float) -> None:
    z = features(spread)
    alpha = 60 / (200 * eps_sq)
    matrix = torch.eye(60, dtype=DOUBLE) + alpha * z.T @ z
    inverse, residual = newton_inverse(matrix, 1 + alpha * 200)
    assert relative(inverse, torch.linalg.inv(matrix)) < 1e-10
    assert residual < 1e-3
    rounded, residual = newton_inverse(matrix.float(), 1 + alpha * 200)
    condition = float(torch.linalg.cond(matrix))
    assert relative(rounded.double(), torch.linalg.inv(matrix)) < 1e-6 * max(condition, 1.0)
    assert residual < 0.1


def test_newton_says_when_a_bound_is_wrong() -> None:
    matrix = torch.diag(torch.linspace(1, 1000, 40, dtype=DOUBLE))
    _, residual = newton_inverse(matrix, 100.0)
    assert not residual < 0.1


@pytest.mark.parametrize("wide", [False, True])
def test_the_inverse_that_is_used_on_a_cpu(wide: bool) -> None:
    z = features(1.0)
    left = z.T if wide else z[:30]
    expected = torch.linalg.inv(torch.eye(len(left), dtype=DOUBLE) + 0.3 * left @ left.T)
    assert relative(inverse_identity_plus(left, Guard(), 0.3), expected) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize(("rank", "decay"), [(12, 0.0), (12, 0.8), (5, 0.0), (1, 0.0), (0, 0.0)])
def test_cholesky_qr(dtype: torch.dtype, rank: int, decay: float) -> None:
    generator = seeded(0)
    left = torch.randn(4, 50, max(rank, 1), generator=generator, dtype=DOUBLE)
    right = torch.randn(4, max(rank, 1), 12, generator=generator, dtype=DOUBLE)
    strengths = torch.exp(-decay * torch.arange(max(rank, 1), dtype=DOUBLE))
    y = (left * strengths @ right * (rank > 0)).to(dtype)
    q = cholesky_qr(y)
    assert q.dtype == dtype
    accuracy = 1e-5 if dtype == torch.float32 else 1e-12
    assert (q.mT @ q - torch.eye(12, dtype=dtype)).abs().max() < accuracy
    assert (y - q @ (q.mT @ y)).norm() <= 10 * accuracy * y.norm()


def test_a_rough_basis_is_enough_between_rounds() -> None:
    y = torch.randn(3, 40, 8, generator=seeded(0))
    q = cholesky_qr(y, rounds=1)
    assert (q.mT @ q - torch.eye(8)).abs().max() < 1e-3


@pytest.mark.parametrize("size", [63, 64, 65, 127, 300])
def test_factor_and_inverse_by_strips_are_those_of_the_whole_matrix(size: int) -> None:
    left = torch.randn(size, 40, generator=seeded(size), dtype=DOUBLE)
    whole = torch.eye(size, dtype=DOUBLE) + 0.3 * left @ left.T
    factor = factor_identity_plus(left, Guard(), 0.3)
    assert relative(factor @ factor.T, whole) < 1e-13
    assert torch.equal(factor, factor.tril())
    assert relative(cholesky_inverse(factor) @ whole, torch.eye(size, dtype=DOUBLE)) < 1e-11


def test_a_factor_that_failed_has_no_inverse_and_raises_nothing() -> None:
    inverse = cholesky_inverse(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert bool(inverse.isnan().all())


def test_newtons_rounds_end_where_the_bound_is_beyond_floating_point() -> None:
    inverse, residual = newton_inverse(torch.diag(torch.tensor([1.0, 2.0, 1e9])), 1e18)  # d/ε² of an ε² of 1e-15
    assert inverse.shape == (3, 3)
    assert not residual < 0.1  # which is reported
