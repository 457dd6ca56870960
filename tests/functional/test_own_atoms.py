"""Steps and values from each class's own atoms: the same numbers as from all atoms, and as the transcription."""

from __future__ import annotations

from typing import Any

import pytest
import reference
import torch
from cases import DOUBLE, Case, relative
from seeds import seeded
from torch import Tensor

from vmcr2 import VMCR2Loss
from vmcr2.functional import _own_steps, _problem, _steps, variational_step, variational_terms
from vmcr2.functional._inputs import read_classes
from vmcr2.functional._linalg import Guard
from vmcr2.functional._own_atoms import find_own_atoms

CASES = [Case(60, 8, 6, balance, False) for balance in ("even", "skewed", "absent", "single")]
ATOMS = 18


def sparse_atoms(case: Case, dtype: torch.dtype = DOUBLE) -> tuple[Tensor, Tensor]:
    """Random atoms; a class has 0 to 4 of them, and some atoms have two classes."""
    generator = seeded(11)
    dictionary = torch.randn(case.d, ATOMS, generator=generator, dtype=DOUBLE)
    codes = torch.zeros(ATOMS, case.k, dtype=DOUBLE)
    for j in range(case.k):
        chosen = torch.randperm(ATOMS, generator=generator)[: j % 5]
        codes[chosen, j] = 0.1 + torch.rand(len(chosen), generator=generator, dtype=DOUBLE) / 4
    return torch.nn.functional.normalize(dictionary, dim=0).to(dtype), codes.to(dtype)


def without_own_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_steps, _problem):
        monkeypatch.setattr(module, "find_own_atoms", lambda *_: None)


@pytest.fixture
def numbers_of_open_atoms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    whole = _own_steps.open_atoms

    def counted(*args: Any) -> Tensor:
        atoms = whole(*args)
        found.append(len(atoms))
        return atoms

    monkeypatch.setattr(_own_steps, "open_atoms", counted)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_own_atoms_are_the_codes_that_are_not_zero(case: Case) -> None:
    dictionary, codes = sparse_atoms(case)
    own = find_own_atoms(dictionary, codes, read_classes(case.labels(), case.features(), case.k, Guard()))
    assert own is not None
    assert own.which.shape == (case.k, 4)
    assert torch.equal(own.scatter(own.codes, ATOMS), codes)
    for j in range(case.k):
        (mine,) = codes[:, j].nonzero(as_tuple=True)
        assert torch.equal(own.which[j][own.filled[j]], mine)
        assert torch.equal(own.atoms[j][own.filled[j]], dictionary.T[mine])


def test_dense_codes_and_memberships_have_none() -> None:
    case = CASES[0]
    dictionary, codes = sparse_atoms(case)
    z, labels = case.features(), case.labels()
    assert find_own_atoms(dictionary, codes + 0.1, read_classes(labels, z, case.k, Guard())) is None
    wide = codes.clone()
    wide[:5, 0] = 1.0
    assert find_own_atoms(dictionary, wide, read_classes(labels, z, case.k, Guard())) is None
    assert find_own_atoms(dictionary, codes, read_classes(case.membership(), z, case.k, Guard())) is None


@pytest.mark.parametrize("nu", [0.5, 5.0])
@pytest.mark.parametrize("weight", [0.1, 3.0, 3000.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_step_is_that_of_all_atoms(
    case: Case, weight: float, nu: float, numbers_of_open_atoms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small weight all foreign codes provably stay 0, with a large one some become positive."""
    z, labels, atoms = case.features(), case.labels(), sparse_atoms(case)
    settings: dict[str, Any] = {"weight": weight, "nu_dictionary": nu, "nu_codes": nu}
    step = variational_step(z, labels, *atoms, **settings)
    (opened,) = numbers_of_open_atoms
    assert opened == {0.1: 0, 3.0: opened, 3000.0: ATOMS}[weight]
    if weight == 3000.0:
        assert ((step[1] > 0) & (atoms[1] == 0)).any()
    without_own_atoms(monkeypatch)
    expected = variational_step(z, labels, *atoms, **settings)
    assert relative(step[0], expected[0]) < 1e-12
    assert relative(step[1], expected[1]) < 1e-12
    assert torch.equal(step[1] > 0, expected[1] > 0)


@pytest.mark.parametrize("weight", [0.1, 3000.0])
def test_the_step_is_algorithm_1(weight: float) -> None:
    case = CASES[0]
    z, labels, atoms = case.features(), case.labels(), sparse_atoms(case)
    step = variational_step(z, labels, *atoms, eps_sq=0.5, weight=weight, cap_codes_step=False)
    expected = reference.algorithm1_step(z, case.membership(), *atoms, 0.5, 2 * weight / case.m, 5.0, 5.0)
    assert relative(step[0], expected[0]) < 1e-9
    assert relative(step[1], expected[1]) < 1e-9


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_objective_and_its_gradients_are_those_of_the_reference(case: Case) -> None:
    z, (dictionary, codes) = case.features(), sparse_atoms(case)
    inputs = [tensor.requires_grad_() for tensor in (z, dictionary, codes)]
    terms = variational_terms(z, case.labels(), dictionary, codes, eps_sq=0.5, mu=0.8)
    expected = reference.objective(z, case.membership(), dictionary, codes, 0.5, 0.8)
    assert abs(terms.objective - expected) < 1e-9 * abs(expected)
    gradients = torch.autograd.grad(terms.objective, inputs)
    for gradient, target in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        assert relative(gradient, target) < 1e-9


@pytest.mark.parametrize("codes", ["free", "flat"])
@pytest.mark.parametrize("surrogate", [False, True])
def test_a_loss_learns_the_same_from_them(codes: Any, surrogate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten steps of the loss, in float64 and with classes that are sometimes absent."""

    def learned() -> tuple[Tensor, ...]:
        loss = VMCR2Loss(6, 8, atoms_per_class=2, codes=codes, self_latch=False).double()
        outcomes = []
        for step in range(10):
            z = torch.randn(15, 8, generator=seeded(step), dtype=DOUBLE, requires_grad=True)
            labels = torch.randint(0, 6, (15,), generator=seeded(step))
            if step == 0:
                loss.latch(z.detach().repeat(3, 1), torch.arange(45) % 6)
            value = (loss.surrogate if surrogate else loss)(z, labels)
            outcomes += [value.detach(), *torch.autograd.grad(value, z)]
        return *outcomes, loss.dictionary, loss.codes

    fast = learned()
    without_own_atoms(monkeypatch)
    monkeypatch.setattr("vmcr2.losses._variational_step.find_own_atoms", lambda *_: None)
    for one, other in zip(fast, learned(), strict=True):
        assert relative(one, other) < 1e-9
