"""Eq. 7: every term and every closed-form gradient against the transcription, and what the theory says of them."""

from __future__ import annotations

from itertools import combinations

import pytest
import reference
import torch
from cases import CASES, DOUBLE, EVEN, Case, relative
from torch import Tensor

from vmcr2.functional import (
    latch,
    mismatch,
    rate_reduction,
    variational_step,
    variational_terms,
)

EPS_SQ, MU = 0.4, 0.3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_terms_equal_the_reference(case: Case) -> None:
    z, membership = case.features(), case.membership()
    dictionary, codes = case.atoms(1 if case.balance == "even" else 3)
    terms = variational_terms(z, case.labels(), dictionary, codes, eps_sq=EPS_SQ, mu=MU)
    expected = {
        "variational_expansion": reference.variational_expansion(dictionary, codes, membership, EPS_SQ),
        "variational_compression": reference.variational_compression(codes, membership, case.d, EPS_SQ),
        "mismatch": reference.mismatch(z, membership, dictionary, codes),
        "objective": reference.objective(z, membership, dictionary, codes, EPS_SQ, MU),
        "expansion": reference.coding_rate(z, EPS_SQ),
    }
    for name, target in expected.items():
        assert relative(getattr(terms, name), target) < 1e-9, name


def gradients(case: Case, dictionary: Tensor, codes: Tensor) -> tuple[Tensor, ...]:
    """Of the objective in z, Γ and Â, as the package computes them."""
    leaves = [tensor.clone().requires_grad_() for tensor in (case.features(), dictionary, codes)]
    terms = variational_terms(leaves[0], case.labels(), leaves[1], leaves[2], eps_sq=EPS_SQ, mu=MU)
    return torch.autograd.grad(terms.objective, leaves)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_closed_form_gradients_equal_autograd_of_the_reference(case: Case) -> None:
    z, membership = case.features(), case.membership()
    dictionary, codes = case.atoms(3)
    expected = reference.gradients(z, membership, dictionary, codes, EPS_SQ, MU)
    for gradient, name in zip(gradients(case, dictionary, codes), ("z", "dictionary", "codes"), strict=True):
        assert relative(gradient, expected[name]) < 1e-9, name


@pytest.mark.parametrize("case", [case for case in CASES if case.m < 30], ids=str)
def test_debiased_mismatch(case: Case) -> None:
    z = (case.features() * torch.linspace(0.5, 1.5, case.m, dtype=DOUBLE)[:, None]).requires_grad_()
    dictionary, codes = case.atoms(2)
    value = mismatch(z, case.labels(), dictionary, codes, debias=True)
    expected = reference.mismatch_debiased(z, case.membership(), dictionary, codes)
    assert relative(value.detach(), expected.detach()) < 1e-9
    (gradient,), (target,) = torch.autograd.grad(value, z), torch.autograd.grad(expected, z)
    assert relative(gradient, target) < 1e-9


def test_debiasing_removes_the_minibatch_bias() -> None:
    """Over all batches of 3 of 8 samples, the mean of the debiased ‖Ĉ‖² is that of all pairs; of the plain one, not."""
    population = torch.nn.functional.normalize(torch.randn(8, 5, dtype=DOUBLE), dim=1)
    of_pairs = ((population @ population.T).square().sum() - 8) / (8 * 7)
    blank = torch.zeros(5, 1, dtype=DOUBLE), torch.zeros(1, 1, dtype=DOUBLE)  # codes 0: M = m²·‖Ĉ‖²
    labels = torch.zeros(3, dtype=torch.long)
    batches = [population[list(chosen)] for chosen in combinations(range(8), 3)]
    plain, debiased = (
        torch.stack([mismatch(batch, labels, *blank, debias=debias) for batch in batches]).mean() / 9
        for debias in (False, True)
    )
    assert relative(debiased, of_pairs) < 1e-12
    assert relative(plain, (1 - 1 / 3) * of_pairs + 1 / 3) < 1e-12


def test_the_mismatch_for_logs_does_not_cancel() -> None:
    """Where M is as small as the rounding of float32 numbers, "precise" still has its digits.

    Over 20 seeds M was 2e-9 to 5e-9 and "precise" right to 0.2 %. The three parts of the expansion are near 5000: in
    float32 their sum is a multiple of 3e-4, so it cannot be M, whatever the rounding on this CPU.
    """
    z = torch.nn.functional.normalize(torch.randn(300, 20), dim=1)
    labels = torch.arange(300) % 3
    dictionary, codes = latch(z, labels, 3, atoms_per_class=20, method="eigh")
    truth = reference.mismatch(z, reference.one_hot(labels, 3), dictionary, codes).item()
    precise = mismatch(z, labels, dictionary, codes, method="precise")
    assert precise.dtype == DOUBLE
    assert 0 < precise.item() == pytest.approx(truth, rel=0.02)
    assert truth < 1e-7
    fast = mismatch(z, labels, dictionary, codes).item()
    assert abs(fast - truth) > 0.5 * truth
    assert abs(fast) < 1e-7 * 300**2


@pytest.mark.parametrize("case", [case for case in CASES if case.m > 1], ids=str)
def test_latched_on_the_batch_with_kd_atoms_it_is_the_exact_rate_reduction(case: Case) -> None:
    z, labels = case.features(), case.labels()
    dictionary, codes = latch(z, labels, case.k, atoms_per_class=case.d)
    terms = variational_terms(z, labels, dictionary, codes, mu=1.0)
    exact = rate_reduction(z, labels, case.k)
    assert terms.mismatch.abs() < 1e-9 * case.m**2
    assert terms.objective.item() == pytest.approx(exact.delta.item(), rel=1e-9, abs=1e-9)
    assert terms.variational_expansion.item() == pytest.approx(exact.expansion.item(), rel=1e-9)


def test_maximised_over_the_dictionary_it_falls_to_the_rate_reduction_as_mu_grows() -> None:
    case = Case(24, 6, 3, "even", False)
    z, labels = case.features(), case.labels()
    exact = rate_reduction(z, labels, 3).delta.item()
    maxima = []
    for weight in (10.0, 100.0, 1e5):
        dictionary, codes = latch(z, labels, 3, atoms_per_class=6)
        for _ in range(500):
            dictionary, codes = variational_step(
                z, labels, dictionary, codes, weight=weight, nu_dictionary=1, nu_codes=1
            )
        maxima.append(variational_terms(z, labels, dictionary, codes, weight=weight).objective.item())
    assert maxima == sorted(maxima, reverse=True)
    assert all(value > exact for value in maxima)
    assert maxima[0] - exact > 0.1
    assert maxima[-1] - exact < 1e-3


@pytest.mark.parametrize("case", EVEN, ids=str)
def test_the_appendix_s_expansion(case: Case) -> None:
    z, membership = case.features(), case.membership()
    dictionary, codes = case.atoms(2)
    penalty = MU / (2 * case.m) * mismatch(z, case.labels(), dictionary, codes)
    assert relative(penalty, reference.appendix_penalty(z, membership, dictionary, codes, MU)) < 1e-9
    assert relative(penalty, reference.appendix_penalty_dense(z, membership, dictionary, codes, MU)) < 1e-9


def test_gradcheck() -> None:
    for case in (Case(9, 4, 3, "single", False), Case(6, 4, 3, "even", True)):
        inputs = [tensor.requires_grad_() for tensor in (case.features(), *case.atoms(2))]

        labels = case.labels()
        torch.autograd.gradcheck(
            lambda z, *atoms, y=labels: (
                variational_terms(z, y, *atoms, weight=3.0, debias=True, validate=False).objective
            ),
            inputs,
        )


@pytest.mark.parametrize("case", EVEN, ids=str)
def test_weight_and_mu_say_the_same(case: Case) -> None:
    z, labels = case.features(), case.labels()
    dictionary, codes = case.atoms(2)
    by_mu = variational_terms(z, labels, dictionary, codes, mu=0.1).objective
    by_weight = variational_terms(z, labels, dictionary, codes, weight=0.1 * case.m / 2).objective
    assert relative(by_mu, by_weight) < 1e-12


def test_strips_of_a_large_dictionary_give_the_same() -> None:
    """q² far beyond m·d is made in strips; the numbers must not notice."""
    case = Case(6, 4, 3, "even", False)
    dictionary, codes = case.atoms(100)  # q = 300, 4·m·d = 96, q·d = 1200: strips of 4 rows
    expected = reference.gradients(case.features(), case.membership(), dictionary, codes, EPS_SQ, MU)
    _, by_dictionary, by_codes = gradients(case, dictionary, codes)
    assert relative(by_dictionary, expected["dictionary"]) < 1e-9
    assert relative(by_codes, expected["codes"]) < 1e-9


def test_memory_of_the_fast_path_stays_below_k_d_squared() -> None:
    from vmcr2 import VMCR2Loss
    from vmcr2.bench._measure import peak_bytes

    m, d, k = 400, 200, 200
    loss = VMCR2Loss(k, d, atoms_per_class=1)
    features, labels = torch.randn(m, d), torch.arange(m) % k
    loss.latch(features, labels)

    def job() -> None:
        loss(features.requires_grad_(), labels).backward()
        features.grad = None

    assert peak_bytes(job) / 4 < 0.25 * k * d * d
