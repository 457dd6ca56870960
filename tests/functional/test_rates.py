"""R, R_c and ΔR: every back end against the transcription, and the theory of Eq. 1."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from cases import CASES, DOUBLE, HARD, Case, relative
from seeds import randn, seeded
from torch import Tensor

from vmcr2.functional import coding_rate, maximal_rate_reduction, rate_reduction

BACKENDS = ["loop", "covariance", "gram", "auto"]
# large enough for symmetric products in strips, on both sides of m = d
WIDE = [Case(150, 70, 3, "skewed", True), Case(70, 131, 2, "even", True), Case(150, 70, 2, "even", False)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES + WIDE, ids=str)
def test_values_and_gradients_equal_the_reference(case: Case, backend: str) -> None:
    z = case.features().requires_grad_()
    labels = case.labels().requires_grad_(case.soft)
    inputs = [z, labels] if case.soft else [z]
    terms = rate_reduction(z, labels, case.k, eps_sq=0.3, backend=backend)
    membership = labels if case.soft else case.membership()
    expected = reference.rate_reduction(z, membership, 0.3)
    for value, target in zip(terms, expected, strict=True):
        assert abs(value - target) < 1e-9 * expected[0]
    # twice R: with a single class R − R_c is 0 and so is its gradient
    gradients = torch.autograd.grad(2 * terms.expansion - terms.compression, inputs)
    targets = torch.autograd.grad(2 * expected[0] - expected[1], inputs)
    for gradient, target in zip(gradients, targets, strict=True):
        assert relative(gradient, target) < 1e-9


@pytest.mark.parametrize("backend", BACKENDS)
def test_coding_rate_equals_the_reference(backend: str) -> None:
    for m, d in ((24, 6), (12, 20), (9, 9), (1, 5)):
        z = 1.7 * randn(m, d)
        assert relative(coding_rate(z, eps_sq=0.5, backend=backend), reference.coding_rate(z, 0.5)) < 1e-9


@pytest.mark.parametrize("case", HARD, ids=str)
def test_float32_is_close_to_float64(case: Case) -> None:
    value = rate_reduction(case.features(torch.float32), case.labels(), case.k)
    exact = rate_reduction(case.features(), case.labels(), case.k)
    assert all(abs(a - b) < 1e-5 * max(1.0, abs(b)) for a, b in zip(value, exact, strict=True))
    assert value.delta.dtype == torch.float32


def test_one_hot_memberships_equal_labels() -> None:
    for case in HARD:
        z = case.features()
        hard = rate_reduction(z, case.labels(), case.k)
        soft = rate_reduction(z, case.membership(), case.k)
        assert all(relative(a, b) < 1e-10 for a, b in zip(hard, soft, strict=True))


def test_absent_classes_contribute_exactly_nothing() -> None:
    z, labels = torch.randn(20, 6, dtype=DOUBLE), torch.arange(20) % 3
    few, many = rate_reduction(z, labels, 3), rate_reduction(z, labels * 50, 1000)
    assert few.compression.item() == many.compression.item()


def test_number_of_classes_is_read_off_the_labels() -> None:
    z, labels = torch.randn(20, 6), torch.arange(20) % 3
    assert rate_reduction(z, labels).delta == rate_reduction(z, labels, 3).delta
    assert rate_reduction(z, labels.to(torch.uint8)).delta == rate_reduction(z, labels, 3).delta


def test_gradcheck() -> None:
    case = Case(10, 4, 3, "skewed", False)
    z = case.features().requires_grad_()
    for backend in BACKENDS:
        torch.autograd.gradcheck(lambda x, b=backend: rate_reduction(x, case.labels(), 3, backend=b).delta, (z,))
    soft = Case(8, 4, 3, "even", True)
    torch.autograd.gradcheck(
        lambda x, pi: rate_reduction(x, pi, 3, validate=False).delta,
        (soft.features().requires_grad_(), soft.labels().requires_grad_()),
    )


def test_second_derivatives_come_from_the_loop_and_are_refused_elsewhere() -> None:
    z, labels = torch.randn(6, 3, dtype=DOUBLE, requires_grad=True), torch.arange(6) % 2
    torch.autograd.gradgradcheck(lambda x: rate_reduction(x, labels, backend="loop").delta, (z,))
    with pytest.raises(RuntimeError, match=r"no second derivative: use .*loop"):
        torch.autograd.grad(rate_reduction(z, labels).delta, z, create_graph=True)


def _orthogonal_subspaces(d: int, k: int, copies: int) -> tuple[Tensor, Tensor]:
    """``copies`` of an orthonormal basis, d/k of its vectors to each class."""
    basis = torch.linalg.qr(torch.randn(d, d, dtype=DOUBLE)).Q
    return basis.repeat(copies, 1), (torch.arange(d) // (d // k)).repeat(copies)


@pytest.mark.parametrize(("d", "k", "copies"), [(12, 3, 1), (12, 3, 4), (20, 10, 2), (6, 1, 2), (8, 8, 1)])
def test_closed_form_on_orthogonal_subspaces(d: int, k: int, copies: int) -> None:
    z, labels = _orthogonal_subspaces(d, k, copies)
    for eps_sq in (0.5, 0.01):
        delta = rate_reduction(z, labels, k, eps_sq=eps_sq).delta.item()
        assert delta == pytest.approx(maximal_rate_reduction(d, k, eps_sq=eps_sq), rel=1e-10)
        assert delta == pytest.approx(reference.balanced_max_delta(d, k, eps_sq), rel=1e-10)


def test_the_paper_s_maxima() -> None:
    assert maximal_rate_reduction(128, 10) == pytest.approx(50.83, abs=0.005)
    assert maximal_rate_reduction(500, 100) == pytest.approx(261.39, abs=0.005)
    assert maximal_rate_reduction(500, 200) == pytest.approx(267.16, abs=0.005)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds(case: Case) -> None:
    """0 ≤ ΔR ≤ ½ r log(1 + d/(ε² r)), r = min(m, d)."""
    for seed, eps_sq in enumerate((0.5, 0.5, 0.01, 0.01)):
        delta = rate_reduction(case.features(seed=seed), case.labels(), case.k, eps_sq=eps_sq).delta.item()
        assert -1e-12 <= delta <= reference.max_delta(case.m, case.d, eps_sq) + 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_invariances(case: Case) -> None:
    z, labels = case.features(), case.labels()
    delta = rate_reduction(z, labels, case.k).delta + 1.0  # a single class has ΔR = 0
    rotation = torch.linalg.qr(torch.randn(case.d, case.d, dtype=DOUBLE)).Q
    order, names = torch.randperm(case.m), torch.randperm(case.k)
    renamed = labels[:, names] if case.soft else names[labels]
    assert relative(rate_reduction(z @ rotation, labels, case.k).delta + 1.0, delta) < 1e-10
    assert relative(rate_reduction(z[order], labels[order], case.k).delta + 1.0, delta) < 1e-10
    assert relative(rate_reduction(z, renamed, case.k).delta + 1.0, delta) < 1e-10


@pytest.mark.parametrize(
    "case", [case for case in CASES if 1 < case.k - (case.balance == "absent") < case.m - 1], ids=str
)
def test_a_gradient_step_raises_the_rate_reduction(case: Case) -> None:
    z = case.features().requires_grad_()
    before = rate_reduction(z, case.labels(), case.k).delta
    (gradient,) = torch.autograd.grad(before, z)
    # along the sphere: the part across a feature would only scale it
    tangent = gradient - (gradient * z).sum(1, keepdim=True) * z
    assert tangent.norm() > 1e-6
    step = 1e-3 * tangent / tangent.norm()
    after = rate_reduction(torch.nn.functional.normalize(z + step, dim=1), case.labels(), case.k).delta
    assert after > before


@pytest.mark.parametrize("sizes", [[20] * 10, [1] * 50 + [150], [3, 5, 9, 17, 33, 65, 68], [200], [40, 0, 0, 160]])
@pytest.mark.parametrize("d", [16, 64, 300])
def test_memory_does_not_depend_on_the_balance(sizes: list[int], d: int) -> None:
    from vmcr2.bench._measure import peak_bytes

    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    m = len(labels)
    features = torch.nn.functional.normalize(torch.randn(m, d), dim=1)

    def job() -> None:
        rate_reduction(features.requires_grad_(), labels, len(sizes)).delta.backward()
        features.grad = None

    floats = 4 * (m * d + min(m, d) ** 2 + sum(min(n, d) ** 2 for n in sizes))
    assert peak_bytes(job) <= 4 * floats + 2**16  # and 64 KiB of indices


def test_small_precision_is_retried_in_float64() -> None:
    z = torch.ones(40, 30) / math.sqrt(30)  # rank one: float32 loses the identity beside it
    labels = torch.arange(40) % 2
    exact = rate_reduction(z.double(), labels, eps_sq=1e-8).expansion
    assert rate_reduction(z, labels, eps_sq=1e-8).expansion.item() == pytest.approx(exact.item(), rel=1e-2)


def test_the_loop_says_where_torch_logdet_is_lost() -> None:
    z = torch.nn.functional.normalize(torch.randn(6, 8, generator=seeded(0)), dim=1)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    lost = 0
    for power in range(8, 13):
        value = rate_reduction(z, labels, eps_sq=10.0**-power, backend="auto").delta
        try:
            assert rate_reduction(z, labels, eps_sq=10.0**-power, backend="loop").delta.isfinite()
        except ValueError as error:
            assert "use another backend" in str(error)  # noqa: PT017 - at which ε² is the rounding's affair
            lost += 1
        assert value.isfinite()
    assert lost > 0
