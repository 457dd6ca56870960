"""Each projection against the problem that it solves."""

from __future__ import annotations

import pytest
import torch
from cases import DOUBLE, relative
from seeds import randn
from torch import Tensor

from vmcr2.functional import maximal_rate_reduction, variational_terms
from vmcr2.functional._projections import (
    codes_projection,
    flat_codes,
    project_nonnegative,
    project_unit_columns,
    unit_columns,
)

ALL = {"unit": project_unit_columns, "nonnegative": project_nonnegative}
ROWS = [1, 2, 5, 40]
SIZES = [1e-6, 0.05, 1.0, 20.0]


def distance(x: Tensor, y: Tensor) -> Tensor:
    """Per column."""
    return torch.linalg.vector_norm(x - y, dim=0)


@pytest.mark.parametrize("rows", ROWS)
def test_unit_columns_are_nearest(rows: int) -> None:
    for size in SIZES:
        x = size * randn(rows, 8)
        projected = project_unit_columns(x)
        assert (torch.linalg.vector_norm(projected, dim=0) - 1).abs().max() < 1e-14
        assert relative(projected * torch.linalg.vector_norm(x, dim=0), x) < 1e-14  # the same direction
        assert (unit_columns(x) - projected).abs().max() < 1e-14
        best = distance(projected, x)
        for seed in range(50):
            near = project_unit_columns(projected + 0.1 * randn(rows, 8, seed=seed))
            for other in (torch.nn.functional.normalize(randn(rows, 8, seed=seed), dim=0), near):
                assert (distance(other, x) >= best - 1e-14).all()


@pytest.mark.parametrize("rows", ROWS)
def test_nonnegative_is_nearest(rows: int) -> None:
    x = randn(rows, 8)
    projected = project_nonnegative(x)
    rest = x - projected
    # the KKT conditions of min ‖y − x‖² over y ≥ 0
    assert (projected >= 0).all()
    assert (rest <= 0).all()
    assert (rest * projected).abs().max() == 0


def test_zero_columns_answer_as_documented() -> None:
    x = randn(4, 3)
    x[:, 1] = 0
    first = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=DOUBLE)
    assert torch.equal(project_unit_columns(x)[:, 1], first)
    assert torch.equal(project_unit_columns(-torch.zeros(4, 1, dtype=DOUBLE))[:, 0], first)
    # and the columns beside it are not disturbed
    assert torch.equal(project_unit_columns(x)[:, [0, 2]], project_unit_columns(x[:, [0, 2]]))


@pytest.mark.parametrize("name", ALL)
def test_idempotent_pure_and_of_the_same_dtype(name: str) -> None:
    for dtype in (torch.float32, DOUBLE):
        x = (3 * randn(9, 7)).to(dtype)
        x[:, 2] = 0
        before = x.clone()
        once = ALL[name](x)
        assert torch.equal(x, before)
        assert once.dtype == dtype
        assert once.shape == x.shape
        assert (ALL[name](once) - once).abs().max() <= 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e-10, 1e10, 1e30, 3e38])
def test_extreme_float32_columns(size: float) -> None:
    column = torch.tensor([[3.0], [-1.0], [2.5], [0.0]])
    x = (column.double() * size / 3).float()
    assert relative(project_unit_columns(x), x.double() / torch.linalg.vector_norm(x.double())) < 1e-6


def test_flat_codes_are_even_on_own_atoms_whatever_they_were() -> None:
    x = randn(12, 4, seed=3)
    flat = flat_codes(x)
    assert torch.equal(flat.sum(0), torch.ones(4, dtype=DOUBLE))
    for j in range(4):
        assert torch.equal(flat[3 * j : 3 * j + 3, j], torch.full((3,), 1 / 3, dtype=DOUBLE))
    assert torch.equal(flat, flat_codes(torch.zeros_like(x)))
    with pytest.raises(ValueError, match="multiple of 5"):
        flat_codes(randn(12, 5, seed=3))


def test_a_rule_is_its_projection_and_a_trace_is_only_for_flat_codes() -> None:
    x = randn(12, 4, seed=3)
    assert torch.equal(codes_projection("free", 6.0)(x), x.clamp_min(0))
    assert relative(codes_projection("flat", 6.0)(x), 6 * flat_codes(x)) < 1e-15


def test_flat_codes_are_those_of_the_largest_rate_reduction() -> None:
    """Orthonormal atoms with flat codes have ΔR's maximum, and steeper codes of the same trace less."""
    k, s = 4, 3
    d = k * s
    atoms = torch.eye(d, dtype=DOUBLE)
    flat = flat_codes(torch.zeros(d, k, dtype=DOUBLE))

    def delta(codes: Tensor) -> float:
        terms = variational_terms(atoms, torch.arange(d) // s, atoms, codes, weight=1.0)  # rows are samples too
        return (terms.variational_expansion - terms.variational_compression).item()

    assert delta(flat) == pytest.approx(maximal_rate_reduction(d, k), rel=1e-12)
    steeper = flat * torch.linspace(0.5, 1.5, s, dtype=DOUBLE).repeat(k).unsqueeze(1)
    assert delta(steeper) < delta(flat) - 1e-3
