"""hypothesis drives the pure functions over shapes, precisions, balances and extremes of the stated domain.

Never a NaN, never an error but ``ValueError``, and none at all for unit rows. `HYPOTHESIS_PROFILE=long` draws 2,000
examples for each test, 30,000 in all; docs/reliability.md has the figures of such a run.
"""

from __future__ import annotations

from typing import Any

import torch
from batches import NUMBERS, ODD_NUMBERS, Batch, assert_finite, attempt, batches, driven, gradient_of
from hypothesis import given, strategies as st

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
    subspace_overlap,
    subspace_residuals,
    variational_logdet,
    variational_spectral,
    variational_step,
    variational_terms,
)

USUAL = st.sampled_from([0.5, 1e-4, 1e-2, 1.0, 1e4])


@driven()
@given(batches(), ODD_NUMBERS, st.sampled_from(["auto", "gram", "covariance", "loop"]))
def test_rates(batch: Batch, eps_sq: float, backend: Any) -> None:
    z = batch.z.clone().requires_grad_()
    usual = batch.plain and 1e-4 <= eps_sq <= 1e12 and backend != "loop"
    value = attempt(lambda: coding_rate(z, eps_sq=eps_sq, backend=backend), must_work=usual)
    if value is not None:
        assert_finite(value, gradient_of(value, z))
        assert value.item() >= -1e-3
    terms = attempt(
        lambda: rate_reduction(z, batch.labels, batch.num_classes, eps_sq=eps_sq, backend=backend), must_work=usual
    )
    if terms is not None:
        assert_finite(*terms, gradient_of(terms.delta, z))
        assert terms.compression.item() >= -1e-3


@driven()
@given(batches(), USUAL)
def test_rates_of_unit_rows_agree_with_float64(batch: Batch, eps_sq: float) -> None:
    z = normalize_rows(torch.nan_to_num(batch.z.float(), nan=0.0, posinf=1.0, neginf=-1.0).clamp(-1e15, 1e15))
    lengths = torch.linalg.vector_norm(z.double(), dim=1)
    assert bool(((lengths - 1).abs().minimum(lengths) < 1e-5).all()), "unit rows, or zero rows"
    found = rate_reduction(z, batch.labels, batch.num_classes, eps_sq=eps_sq)
    exact = rate_reduction(z.double(), batch.labels, batch.num_classes, eps_sq=eps_sq, backend="covariance")
    for one, other in zip(found, exact, strict=True):
        assert abs(one.item() - other.item()) <= 1e-3 * max(1.0, exact.expansion.item())
    assert exact.delta.item() >= -1e-6, "ΔR is never negative"


@driven()
@given(
    batches(),
    st.integers(1, 6),
    ODD_NUMBERS,
    NUMBERS,
    st.booleans(),
    st.sampled_from(["free", "flat"]),
    st.sampled_from(["subspace", "eigh"]),
)
def test_latching_and_variational_terms(
    batch: Batch, atoms: int, eps_sq: float, weight: float, debias: bool, rule: Any, method: Any
) -> None:
    z, labels = batch.z.clone().requires_grad_(), batch.labels
    found = attempt(
        lambda: latch(z, labels, batch.num_classes, atoms_per_class=atoms, method=method), must_work=batch.plain
    )
    if found is None:
        return
    dictionary, codes = found
    assert_finite(dictionary, codes)
    assert bool((codes >= 0).all())
    lengths = torch.linalg.vector_norm(dictionary.double(), dim=0)
    assert bool(((lengths - 1).abs() < 1e-3).all()), "unit columns"
    usual = batch.plain and 1e-4 <= eps_sq <= 1e12 and 1e-4 <= weight <= 1e8
    options: dict[str, Any] = {"eps_sq": eps_sq, "weight": weight}
    terms = attempt(lambda: variational_terms(z, labels, *found, debias=debias, **options), must_work=usual)
    if terms is not None:
        assert_finite(terms, gradient_of(terms.objective, z))
    for method_of_m in ("expansion", "precise"):
        value = attempt(lambda m=method_of_m: mismatch(z, labels, *found, method=m, debias=debias))
        assert_finite(value)
        if method_of_m == "precise" and value is not None and not debias:
            assert value.item() >= 0
    moved = attempt(lambda: variational_step(z, labels, *found, codes_rule=rule, **options), must_work=usual)
    assert_finite(moved)


@driven()
@given(batches(), st.one_of(st.none(), st.integers(1, 24)), st.sampled_from(["subspace", "eigh"]))
def test_subspaces(batch: Batch, components: int | None, method: Any) -> None:
    usual = batch.plain and (components is None or components <= batch.dim)
    spaces = attempt(
        lambda: class_subspaces(batch.z, batch.labels, batch.num_classes, num_components=components, method=method),
        must_work=usual,
    )
    if spaces is None:
        return
    assert_finite(spaces)
    residuals = attempt(lambda: subspace_residuals(batch.z, spaces.bases), must_work=usual)
    near = attempt(lambda: nearest_subspace(batch.z, spaces.bases), must_work=usual)
    if residuals is not None:
        assert_finite(residuals)
        assert bool((residuals >= 0).all())
        assert bool(((near >= 0) & (near < batch.num_classes)).all())
    overlap, angles = subspace_overlap(spaces.bases), principal_angles(spaces.bases)
    assert_finite(overlap, angles)
    assert float(overlap.max()) <= 1 + 1e-3
    assert 0 <= float(angles.min()) <= float(angles.max()) <= 1.5708


@driven()
@given(batches(), batches(), ODD_NUMBERS)
def test_spectral_functions(left: Batch, right: Batch, scale: float) -> None:
    z = left.z.clone().requires_grad_()
    for call in (
        lambda: variational_logdet(z, scale),
        lambda: variational_spectral(z, h=torch.log1p),
        lambda: variational_spectral(z, right.z, h=torch.log1p),
    ):
        value = attempt(call)
        if value is not None:
            assert_finite(value, gradient_of(value, z))
            assert value.item() >= 0


@driven()
@given(batches())
def test_normalised_rows(batch: Batch) -> None:
    z = batch.z.clone().requires_grad_()
    unit = normalize_rows(z)
    if bool((batch.z.double().abs() <= 1e15).all()):
        assert_finite(unit)
        lengths = torch.linalg.vector_norm(unit.double(), dim=1)
        assert bool(((lengths - 1).abs().minimum(lengths) < 0.02).all())


@driven()
@given(
    st.integers(-2, 10**6),
    st.integers(-2, 10**4),
    ODD_NUMBERS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    st.one_of(st.none(), st.lists(st.integers(-1, 1000), max_size=5)),
)
def test_numbers_alone(
    dim: int, classes: int, eps_sq: float, expansion: float, compression: float | None, shares: list[int] | None
) -> None:
    usual = dim > 0 and classes > 0 and 1e-12 <= eps_sq <= 1e12
    assert_finite(attempt(lambda: maximal_rate_reduction(dim, classes, eps_sq=eps_sq), must_work=usual))
    classes = classes if shares is None else len(shares)
    found = attempt(
        lambda: diagnose(expansion, compression, num_classes=classes, dim=dim, eps_sq=eps_sq, proportions=shares)
    )
    assert found is None or found.startswith(("collapsed", "stalled"))
