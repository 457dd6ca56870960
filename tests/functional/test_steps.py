"""Algorithm 1's step: equal to the transcription, rising, finite, and the choice for unbalanced classes."""

from __future__ import annotations

import pytest
import reference
import torch
from cases import CASES, DOUBLE, EVEN, HARD, Case, relative
from seeds import seeded
from torch import Tensor

from vmcr2.functional import latch, variational_step, variational_terms

WEIGHT = 20.0


@pytest.mark.parametrize("nu", [0.5, 5.0])
@pytest.mark.parametrize("latched", [False, True])
@pytest.mark.parametrize("case", EVEN, ids=str)
def test_the_step_is_algorithm_1(case: Case, latched: bool, nu: float) -> None:
    z, labels, membership = case.features(), case.labels(), case.membership()
    dictionary, codes = latch(z, labels, case.k, atoms_per_class=2) if latched else case.atoms(2)
    step = variational_step(
        z, labels, dictionary, codes, eps_sq=0.5, mu=0.8, nu_dictionary=nu, nu_codes=nu, cap_codes_step=False
    )
    expected = reference.algorithm1_step(z, membership, dictionary, codes, 0.5, 0.8, nu, nu)
    assert relative(step[0], expected[0]) < 1e-9
    assert relative(step[1], expected[1]) < 1e-9


def _objective(case: Case, dictionary: Tensor, codes: Tensor) -> float:
    return variational_terms(case.features(), case.labels(), dictionary, codes, weight=WEIGHT).objective.item()


BLOCKS = [case for case in CASES if case.m > 4]


@pytest.mark.parametrize("block", ["dictionary", "codes"])
@pytest.mark.parametrize("case", BLOCKS, ids=str)
def test_each_block_step_raises_the_objective_at_latched_points(case: Case, block: str) -> None:
    dictionary, codes = latch(case.features(), case.labels(), case.k, atoms_per_class=2)
    nu = {"nu_dictionary": float(block == "dictionary"), "nu_codes": float(block == "codes")}
    for _ in range(8):
        before = _objective(case, dictionary, codes)
        dictionary, codes = variational_step(case.features(), case.labels(), dictionary, codes, weight=WEIGHT, **nu)
        assert _objective(case, dictionary, codes) >= before - 1e-10 * abs(before)


@pytest.mark.parametrize("case", [case for case in HARD if case.m > 4], ids=str)
def test_the_codes_step_raises_the_objective_from_anywhere(case: Case) -> None:
    for seed in range(5):
        dictionary, codes = case.atoms(2, seed=seed)
        before = _objective(case, dictionary, codes)
        step = variational_step(
            case.features(), case.labels(), dictionary, codes, weight=WEIGHT, nu_dictionary=0.0, nu_codes=1.0
        )
        assert _objective(case, *step) > before


def _mismatch_after(sizes: list[int], rule: str, steps: int = 60) -> Tensor:
    """‖Ĉ_j − ΓDiag(Â_j)Γᵀ‖² of each class after steps on the codes alone with one of the candidate constants."""
    generator = seeded(1)
    d, k, mu = 6, len(sizes), 1.0
    labels = torch.repeat_interleave(torch.arange(k), torch.tensor(sizes))
    m = len(labels)
    z = torch.nn.functional.normalize(torch.randn(m, d, generator=generator, dtype=DOUBLE), dim=1)
    dictionary = torch.nn.functional.normalize(torch.randn(d, 2 * k, generator=generator, dtype=DOUBLE), dim=0)
    membership = reference.one_hot(labels, k)
    n = membership.sum(0)
    paper_codes = 0.5 * n * torch.rand(2 * k, k, generator=generator, dtype=DOUBLE)
    norm = torch.linalg.matrix_norm((dictionary.T @ dictionary).square())
    constant = {
        "per class, μ/n_j": mu / n * norm,
        "literal, μk/m": (mu * k / m * norm).expand(k),
        "global, μ/min n": (mu / n.min() * norm).expand(k),
    }[rule]

    def penalties(A: Tensor) -> Tensor:
        models = torch.einsum("dl,lj,el->jde", dictionary, A, dictionary)
        moments = torch.einsum("id,ij,ie->jde", z, membership, z)
        return (moments - models).square().sum((1, 2))

    for _ in range(steps):
        leaf = paper_codes.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((mu / (2 * n) * penalties(leaf)).sum(), leaf)
        paper_codes = (paper_codes - gradient / constant).clamp_min(0)
    return penalties(paper_codes) / n.square()


def test_one_constant_per_class_is_the_choice_for_unbalanced_classes() -> None:
    """The appendix's k/m stands for 1/n_j. Literally it makes rare classes diverge; one safe one starves the others."""
    sizes = [90, 30, 4]
    chosen = _mismatch_after(sizes, "per class, μ/n_j")
    optimum = _mismatch_after(sizes, "per class, μ/n_j", steps=3000)
    literal = _mismatch_after(sizes, "literal, μk/m")
    safe = _mismatch_after(sizes, "global, μ/min n")
    assert (chosen - optimum).max() < 0.02
    assert literal[2] > 1.5 * optimum[2] + 0.05
    assert safe[0] - optimum[0] > 5 * (chosen[0] - optimum[0])


def test_classes_outside_the_batch_keep_their_codes() -> None:
    case = Case(24, 6, 3, "absent", False)
    dictionary, codes = case.atoms(2)
    _, after = variational_step(case.features(), case.labels(), dictionary, codes, weight=WEIGHT)
    assert torch.equal(after[:, 2], codes[:, 2])
    assert not torch.equal(after[:, 0], codes[:, 0])


def test_zero_codes_leave_the_dictionary_alone() -> None:
    """L_Γ = 0: 0/0 in the paper's step."""
    case = Case(24, 6, 3, "even", False)
    dictionary, codes = case.atoms(2)
    after, new_codes = variational_step(case.features(), case.labels(), dictionary, 0 * codes, weight=WEIGHT)
    assert relative(after, dictionary) < 1e-12
    assert torch.isfinite(new_codes).all()
    assert new_codes.max() > 0  # and the codes grow again


@pytest.mark.parametrize("rule", ["free", "flat"])
def test_projections_hold_after_a_step(rule: str) -> None:
    case = Case(24, 6, 3, "even", False)
    dictionary, codes = case.atoms(2)
    dictionary, codes = variational_step(
        case.features(), case.labels(), dictionary, codes, weight=WEIGHT, codes_rule=rule
    )
    assert relative(dictionary.norm(dim=0), torch.ones(6, dtype=DOUBLE)) < 1e-12
    assert (codes >= 0).all()
    if rule == "flat":
        assert relative(codes.sum(0), torch.ones(3, dtype=DOUBLE)) < 1e-12


@pytest.mark.parametrize("q", [4, 16])
def test_small_dictionaries_overshoot_without_the_cap(q: int) -> None:
    """With ν = 5 an orthonormal dictionary of q < 7 atoms is past 2·‖G₂‖_F/λ_max = 2√q: the codes swing to zero."""
    z = torch.nn.functional.normalize(torch.randn(40, 32, dtype=DOUBLE), dim=1)
    labels = torch.arange(40) % 2
    start = latch(z, labels, 2, atoms_per_class=q // 2)

    def smallest_total(cap: bool) -> float:
        dictionary, codes = start
        totals = []
        for _ in range(30):
            dictionary, codes = variational_step(
                z, labels, dictionary, codes, weight=1000.0, nu_dictionary=0.0, cap_codes_step=cap
            )
            totals.append(codes.sum(0).min().item())
        return min(totals)

    assert smallest_total(cap=True) > 0.1
    if q == 4:
        assert smallest_total(cap=False) < 1e-3


@pytest.mark.parametrize("cap", [True, False])
@pytest.mark.parametrize("case", [case for case in CASES if case.balance in ("skewed", "absent")], ids=str)
def test_a_hundred_steps_stay_finite(case: Case, cap: bool) -> None:
    z, labels = case.features(torch.float32), case.labels().float() if case.soft else case.labels()
    dictionary, codes = latch(z, labels, case.k, atoms_per_class=1)
    for _ in range(100):
        dictionary, codes = variational_step(z, labels, dictionary, codes, weight=WEIGHT, cap_codes_step=cap)
    terms = variational_terms(z, labels, dictionary, codes, weight=WEIGHT)
    assert all(torch.isfinite(value) for value in terms)
    assert relative(dictionary.norm(dim=0), torch.ones(case.k)) < 1e-5
