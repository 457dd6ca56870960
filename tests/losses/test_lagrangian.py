"""The augmented Lagrangian: its step by autograd from its definition, and that it closes the gap the penalty leaves."""

from __future__ import annotations

import pytest
import reference
import torch
from cases import DOUBLE, EVEN, Case, relative
from torch import Tensor

from vmcr2 import VMCR2Loss
from vmcr2.functional import rate_reduction

WEIGHT, RATE = 7.0, 0.3


def gaps(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor) -> Tensor:
    """γ_lᵀ(Ĉ_j − ΓDiag(Â_j)Γᵀ)γ_l, (q, k)."""
    found = torch.zeros_like(codes)
    for j in range(codes.shape[1]):
        moment = z.T @ (z * membership[:, j : j + 1]) / membership[:, j].sum()
        model = dictionary @ torch.diag(codes[:, j]) @ dictionary.T
        found[:, j] = torch.diagonal(dictionary.T @ (moment - model) @ dictionary)
    return found


def lagrangian(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, multipliers: Tensor) -> Tensor:
    """R^v − R^v_c − w Σ_j γ_j ‖Ĉ_j − ΓDiag(Â_j − U_j)Γᵀ‖²."""
    rates = reference.variational_expansion(dictionary, codes, membership, 0.5)
    rates = rates - reference.variational_compression(codes, membership, z.shape[1], 0.5)
    for j in range(codes.shape[1]):
        share, size = membership[:, j].mean(), membership[:, j].sum()
        moment = z.T @ (z * membership[:, j : j + 1]) / size
        model = dictionary @ torch.diag(codes[:, j] - multipliers[:, j]) @ dictionary.T
        rates = rates - WEIGHT * share * (moment - model).square().sum()
    return rates


@pytest.mark.parametrize("case", EVEN, ids=str)
def test_a_step_is_that_of_its_definition(case: Case) -> None:
    z, labels, membership = case.features(), case.labels(), case.membership()
    loss = VMCR2Loss(
        case.k,
        case.d,
        atoms_per_class=2,
        weight=WEIGHT,
        batch_expansion=0.3,
        scale=1.0,
        debias=False,
        multiplier_rate=RATE,
        cap_codes_step=False,
        normalize=False,
    ).double()
    loss.latch(z, labels)
    generator = torch.Generator().manual_seed(1)
    old_multipliers = 0.2 * torch.randn(loss.codes.shape, generator=generator, dtype=DOUBLE)
    loss.multipliers.copy_(old_multipliers)
    dictionary, codes = (x.clone().requires_grad_() for x in (loss.dictionary, loss.codes))

    leaf = z.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()

    old = lagrangian(z, membership, dictionary, codes, old_multipliers)
    by_dictionary, by_codes = torch.autograd.grad(old, (dictionary, codes))
    with torch.no_grad():
        matched, shares = codes - old_multipliers, membership.mean(0)
        energy = torch.stack([(z.T @ (z * membership[:, j : j + 1])).norm() for j in range(case.k)]) / membership.sum(0)
        largest = matched.abs().amax(0)
        bound = 4 * WEIGHT * (shares * (energy * largest + largest.square())).sum()
        new_dictionary = torch.nn.functional.normalize(dictionary + 5.0 / bound * by_dictionary, dim=0)
        frobenius = (dictionary.T @ dictionary).square().norm()
        new_codes = (codes + 5.0 / (2 * WEIGHT * shares * frobenius) * by_codes).clamp_min(0)
        limit = case.d / 0.5 / (4 * WEIGHT)
        answered = old_multipliers + RATE * gaps(z, membership, dictionary, codes)
    assert relative(loss.dictionary, new_dictionary) < 1e-9
    assert relative(loss.codes, new_codes) < 1e-9
    assert relative(loss.multipliers, answered.clamp(-limit, limit)) < 1e-9

    twin = z.clone().requires_grad_()
    expected = -lagrangian(twin, membership, new_dictionary, new_codes, loss.multipliers.clone())
    expected = expected - 0.3 * reference.coding_rate(twin, 0.5)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    assert leaf.grad is not None
    assert relative(leaf.grad, twin.grad) < 1e-9


def clustered(k: int = 4, n: int = 30, d: int = 24) -> tuple[Tensor, Tensor]:
    """Classes near planes of their own."""
    generator = torch.Generator().manual_seed(3)
    planes = torch.linalg.qr(torch.randn(d, 2 * k, generator=generator, dtype=DOUBLE)).Q
    labels = torch.arange(k * n) % k
    inside = torch.randn(k * n, 2, generator=generator, dtype=DOUBLE)
    z = torch.stack([planes[:, 2 * j : 2 * j + 2] @ x for j, x in zip(labels.tolist(), inside, strict=True)])
    z += 0.05 * torch.randn(z.shape, generator=generator, dtype=DOUBLE)
    return torch.nn.functional.normalize(z, dim=1), labels


def test_multipliers_bring_the_variational_rates_down_to_the_true_ones() -> None:
    z, labels = clustered()
    truth = rate_reduction(z, labels, 4).delta.item()
    excess = {}
    for rate in (0.0, 0.1):
        loss = VMCR2Loss(4, z.shape[1], atoms_per_class=3, weight=5.0, multiplier_rate=rate).double()
        loss.latch(z, labels)
        for _ in range(1500):
            loss.update(z, labels)
        terms = loss.terms(z, labels)
        excess[rate] = (terms.variational_expansion - terms.variational_compression).item() - truth
    assert excess[0.0] > 0.3 * truth  # free codes pretend to a rate that the features do not have
    assert abs(excess[0.1]) < 0.05 * truth


def test_at_the_stationary_point_the_network_feels_the_gradient_of_the_rate_reduction() -> None:
    """Samples on axes that two classes share in part, the axes as atoms: U is known in closed form."""
    counts = torch.tensor([[5, 3, 1, 0, 0, 0], [0, 0, 2, 4, 1, 1]])
    labels = torch.repeat_interleave(torch.arange(2), counts.sum(1))
    z = torch.eye(6, dtype=DOUBLE)[torch.cat([torch.repeat_interleave(torch.arange(6), row) for row in counts])]
    codes = counts.double().T / counts.sum(1)
    c = 6 / 0.5
    leverage = 1 / (1 + c * z.square().mean(0))
    multipliers = -c / (4 * WEIGHT) * (leverage.unsqueeze(1) - 1 / (1 + c * codes))
    assert multipliers.abs().max() > 0.05
    loss = VMCR2Loss(
        2,
        6,
        atoms_per_class=3,
        weight=WEIGHT,
        batch_expansion=0.0,
        scale=1.0,
        debias=False,
        multiplier_rate=RATE,
        normalize=False,
    ).double()
    state = {"dictionary": torch.eye(6), "codes": codes, "multipliers": multipliers, "latched": torch.tensor(True)}
    loss.load_state_dict(state)

    felt, true = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss(felt, labels).backward()
    assert relative(loss.dictionary.abs(), torch.eye(6)) < 1e-9  # an atom's sign is nothing
    assert relative(loss.codes, codes) < 1e-9
    assert relative(loss.multipliers, multipliers) < 1e-9
    (-rate_reduction(true, labels, 2).delta).backward()
    assert felt.grad is not None
    assert relative(felt.grad, true.grad) < 1e-9


def test_multipliers_stay_within_their_bound_whatever_the_rate() -> None:
    z, labels = clustered()
    loss = VMCR2Loss(4, z.shape[1], atoms_per_class=3, weight=20.0, multiplier_rate=50.0).double()
    loss.latch(z, labels)
    for _ in range(50):
        loss.update(z, labels)
    assert loss.multipliers.abs().max() <= z.shape[1] / 0.5 / 80.0 + 1e-12
    assert torch.isfinite(loss.codes).all()


def test_latching_carries_the_multipliers_to_the_new_atoms() -> None:
    z, labels = clustered()
    loss = VMCR2Loss(4, z.shape[1], atoms_per_class=2, multiplier_rate=0.1).double()
    loss.latch(z, labels)
    for _ in range(20):
        loss.update(z, labels)
    old_dictionary, old = loss.dictionary.clone(), loss.multipliers.clone()
    loss.latch(z, labels)
    for j in range(4):
        matrix = old_dictionary @ torch.diag(old[:, j]) @ old_dictionary.T
        assert relative(loss.multipliers[:, j], torch.diagonal(loss.dictionary.T @ matrix @ loss.dictionary)) < 1e-9


def test_a_plain_loss_has_no_multipliers_in_its_state() -> None:
    assert set(VMCR2Loss(2, 4, atoms_per_class=1).state_dict()) == {"dictionary", "codes", "latched"}
    assert "multipliers" in VMCR2Loss(2, 4, atoms_per_class=1, multiplier_rate=0.1).state_dict()


def test_latching_keeps_the_trace_when_asked_to() -> None:
    z, labels = clustered()
    for keep in (False, True):
        loss = VMCR2Loss(4, z.shape[1], atoms_per_class=3, weight=5.0, keep_trace=keep).double()
        loss.latch(z, labels)
        assert relative(loss.codes.sum(0), torch.ones(4)) < 0.1  # nothing to keep yet
        for _ in range(100):
            loss.update(z, labels)
        grown = loss.codes.sum(0).clone()
        assert grown.min() > 1.25
        loss.latch(z, labels)
        assert relative(loss.codes.sum(0), grown if keep else torch.ones(4)) < 0.1


@pytest.mark.parametrize("rule", ["simplex", "rescaled", "flat"])
def test_the_trace_of_the_codes_is_what_it_is_set_to(rule: str) -> None:
    z, labels = clustered()
    loss = VMCR2Loss(4, z.shape[1], atoms_per_class=3, codes=rule, codes_trace=6.0).double()  # type: ignore[arg-type]
    loss.latch(z, labels)
    for _ in range(3):
        assert relative(loss.codes.sum(0), torch.full((4,), 6.0)) < 1e-9
        loss.update(z, labels)
    with pytest.raises(ValueError, match="codes_trace"):
        VMCR2Loss(4, 8, atoms_per_class=1, codes_trace=0.0)
