"""Each projection against the problem that it solves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cases import DOUBLE, relative
from torch import Tensor

from vmcr2.functional import (
    flat_codes,
    maximal_rate_reduction,
    project_nonnegative,
    project_simplex,
    project_unit_columns,
    rescale_trace,
    variational_compression,
    variational_expansion,
)

Projection = Callable[[Tensor], Tensor]
ALL: dict[str, Projection] = {
    "unit": project_unit_columns,
    "nonnegative": project_nonnegative,
    "simplex": project_simplex,
    "trace": rescale_trace,
}
ROWS = [1, 2, 5, 40]
SIZES = [1e-6, 0.05, 1.0, 20.0]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def distance(x: Tensor, y: Tensor) -> Tensor:
    """Per column."""
    return torch.linalg.vector_norm(x - y, dim=0)


def simplex_points(rows: int, columns: int, seed: int) -> Tensor:
    """Random points of the simplex, many of them on its faces."""
    generator = torch.Generator().manual_seed(seed)
    weights = -torch.rand(rows, columns, generator=generator, dtype=DOUBLE).log()
    weights *= torch.rand(rows, columns, generator=generator, dtype=DOUBLE) < 0.6
    weights[0] += 1e-9
    return weights / weights.sum(0)


def simplex_by_bisection(column: Tensor) -> Tensor:
    """max(x − τ, 0) with Σ = 1, τ found by halving an interval: independent of any sorting."""
    low, high = column.max().item() - 1.0, column.max().item()
    for _ in range(200):
        middle = 0.5 * (low + high)
        if (column - middle).clamp_min(0).sum().item() > 1.0:
            low = middle
        else:
            high = middle
    return (column - 0.5 * (low + high)).clamp_min(0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_unit_columns_are_nearest(rows: int, size: float) -> None:
    x = size * randn(rows, 8)
    projected = project_unit_columns(x)
    assert (torch.linalg.vector_norm(projected, dim=0) - 1).abs().max() < 1e-14
    assert relative(projected * torch.linalg.vector_norm(x, dim=0), x) < 1e-14  # the same direction
    best = distance(projected, x)
    for seed in range(200):
        near = project_unit_columns(projected + 0.1 * randn(rows, 8, seed=seed))
        for other in (torch.nn.functional.normalize(randn(rows, 8, seed=seed), dim=0), near):
            assert (distance(other, x) >= best - 1e-14).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_nonnegative_is_nearest(rows: int, size: float) -> None:
    x = size * randn(rows, 8)
    projected = project_nonnegative(x)
    rest = x - projected
    # the KKT conditions of min ‖y − x‖² over y ≥ 0
    assert (projected >= 0).all()
    assert (rest <= 0).all()
    assert (rest * projected).abs().max() == 0
    best = distance(projected, x)
    for seed in range(100):
        assert (distance(size * randn(rows, 8, seed=seed).abs(), x) >= best).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_simplex_is_nearest(rows: int, size: float) -> None:
    x = size * randn(rows, 8)
    projected = project_simplex(x)
    assert (projected >= 0).all()
    assert (projected.sum(0) - 1).abs().max() < 1e-12
    expected = torch.stack([simplex_by_bisection(column) for column in x.T], dim=1)
    assert (projected - expected).abs().max() < 1e-12
    # ⟨x − p, y − p⟩ ≤ 0 for every y of the simplex: it is enough to look at the corners
    rest = x - projected
    assert (rest.amax(0) <= (rest * projected).sum(0) + 1e-12).all()
    best = distance(projected, x)
    for seed in range(100):
        assert (distance(simplex_points(rows, 8, seed), x) >= best - 1e-12).all()


def test_simplex_works_column_by_column() -> None:
    x = randn(6, 5)
    alone = torch.cat([project_simplex(x[:, j : j + 1]) for j in range(5)], dim=1)
    assert torch.equal(project_simplex(x), alone)
    assert (project_simplex(x).sum(1) - 1).abs().min() > 1e-3  # rows are not on a simplex


@pytest.mark.parametrize("rows", ROWS)
def test_trace_rescaling_is_the_kl_projection(rows: int) -> None:
    x = randn(rows, 8).clamp_min(-0.5)
    x[0] = x[0].abs() + 0.1  # something positive in every column
    projected, positive = rescale_trace(x), x.clamp_min(0)

    def divergence(y: Tensor) -> Tensor:
        """KL(y ‖ max(x, 0)), infinite where y leaves its support."""
        outside = ((y > 0) & (positive == 0)).any(0)
        terms = torch.where(positive > 0, torch.special.xlogy(y, y / positive), 0.0)
        return terms.sum(0).masked_fill(outside, torch.inf)

    assert (projected >= 0).all()
    assert (projected.sum(0) - 1).abs().max() < 1e-14
    assert torch.equal(projected == 0, positive == 0)
    best = divergence(projected)
    assert best.isfinite().all()
    assert (best + positive.sum(0).log()).abs().max() < 1e-12  # the minimum is −log Σ x
    for seed in range(100):
        inside = simplex_points(rows, 8, seed) * (positive > 0)
        total = inside.sum(0, keepdim=True)
        inside = torch.where(total > 0, inside / total, projected)
        near = rescale_trace(projected * (0.2 * randn(rows, 8, seed=seed)).exp())
        assert (divergence(inside) >= best - 1e-12).all()
        assert (divergence(near) >= best - 1e-12).all()


def test_trace_rescaling_is_not_the_euclidean_projection() -> None:
    x = torch.tensor([[2.0], [0.5]], dtype=DOUBLE)
    rescaled, nearest = rescale_trace(x), project_simplex(x)
    assert rescaled.T.tolist() == [[0.8, 0.2]]
    assert nearest.T.tolist() == [[1.0, 0.0]]
    assert distance(nearest, x).item() < distance(rescaled, x).item() - 0.1


def test_zero_columns_answer_as_documented() -> None:
    x = randn(4, 3)
    x[:, 1] = 0
    first = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=DOUBLE)
    assert torch.equal(project_unit_columns(x)[:, 1], first)
    assert torch.equal(project_nonnegative(x)[:, 1], torch.zeros(4, dtype=DOUBLE))
    assert torch.equal(project_simplex(x)[:, 1], torch.full((4,), 0.25, dtype=DOUBLE))
    assert torch.equal(rescale_trace(x)[:, 1], torch.zeros(4, dtype=DOUBLE))
    # and the columns beside it are not disturbed
    for projection in ALL.values():
        assert torch.equal(projection(x)[:, [0, 2]], projection(x[:, [0, 2]]))
    negative = -x[:, [0, 2]].abs()
    assert torch.equal(rescale_trace(negative), torch.zeros(4, 2, dtype=DOUBLE))
    assert torch.equal(project_unit_columns(-torch.zeros(4, 1, dtype=DOUBLE))[:, 0], first)


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
@pytest.mark.parametrize("name", ["unit", "nonnegative", "trace"])
def test_extreme_float32_columns(name: str, size: float) -> None:
    column = torch.tensor([[3.0], [-1.0], [2.5], [0.0]])
    x = (column.double() * size / 3).float()
    expected = {
        "unit": x.double() / torch.linalg.vector_norm(x.double()),
        "nonnegative": x.double().clamp_min(0),
        "trace": x.double().clamp_min(0) / x.double().clamp_min(0).sum(),
    }[name]
    assert relative(ALL[name](x), expected) < 1e-6


@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e-10, 1e3, 1e5, 1e7, 1e8, 1e10, 1e30, 1e38])
def test_simplex_of_extreme_float32_columns(size: float) -> None:
    """The projection is a point of the simplex, however far away the column is."""
    directions = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.5], [-1.0, 1.0, 1.0]]).double()
    x = (size * directions).float()
    expected = torch.stack([simplex_by_bisection(column) for column in x.double().T], dim=1)
    if size > 1e15:  # bisection cannot resolve it: corners, and the centre of the faces of equal entries
        expected = torch.tensor([[1.0, 1 / 3, 0.5], [0.0, 1 / 3, 0.0], [0.0, 1 / 3, 0.5]])
    assert (project_simplex(x) - expected).abs().max() < 1e-5
    assert (project_simplex(x).sum(0) - 1).abs().max() < 1e-5


def test_simplex_does_not_change_when_a_constant_is_added() -> None:
    x = torch.tensor([[0.5, 0.25], [0.25, 0.25], [-1.0, 0.0]])  # exact beside 2^17 in float32
    assert (project_simplex(x + 2**17) - project_simplex(x)).abs().max() < 1e-6


def test_flat_codes_are_even_on_own_atoms_whatever_they_were() -> None:
    x = randn(12, 4, seed=3)
    flat = flat_codes(x)
    assert torch.equal(flat.sum(0), torch.ones(4, dtype=DOUBLE))
    for j in range(4):
        assert torch.equal(flat[3 * j : 3 * j + 3, j], torch.full((3,), 1 / 3, dtype=DOUBLE))
    assert torch.equal(flat, flat_codes(torch.zeros_like(x)))
    with pytest.raises(ValueError, match="no multiple of 5"):
        flat_codes(randn(12, 5, seed=3))


def test_flat_codes_are_those_of_the_largest_rate_reduction() -> None:
    """Orthonormal atoms with flat codes have ΔR's maximum, and steeper codes of the same trace less."""
    k, s = 4, 3
    d = k * s
    atoms, shares = torch.eye(d, dtype=DOUBLE), torch.full((k,), 1 / k, dtype=DOUBLE)
    flat = flat_codes(torch.zeros(d, k, dtype=DOUBLE))

    def delta(codes: torch.Tensor) -> float:
        return (variational_expansion(atoms, codes, shares) - variational_compression(codes, shares, d)).item()

    assert delta(flat) == pytest.approx(maximal_rate_reduction(d, k), rel=1e-12)
    steeper = flat * torch.linspace(0.5, 1.5, s, dtype=DOUBLE).repeat(k).unsqueeze(1)
    assert delta(steeper) < delta(flat) - 1e-3
