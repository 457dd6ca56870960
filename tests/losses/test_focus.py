"""A focus: the logarithm of a sample's share in its class's atoms in place of the share."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from cases import CASES, DOUBLE, Case, relative
from seeds import seeded
from torch import Tensor

from vmcr2 import VMCR2Loss

WEIGHT = 7.0


def attraction(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, focus: float) -> Tensor:
    """Σ_i L ψ(e_i/L)/m, sample by sample."""
    total = z.new_zeros(())
    for row, share in zip(z, membership, strict=True):
        model = dictionary @ torch.diag(codes @ share) @ dictionary.T
        energy, largest = row @ model @ row, codes.amax(0) @ share
        total = total + largest * torch.log(1 + focus * energy / largest) / math.log(1 + focus)
    return total / len(z)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_are_those_of_the_formula(case: Case) -> None:
    focus = 0.5 if case.balance == "even" else 10.0
    z, membership = case.features(), case.membership()
    made = VMCR2Loss(
        case.k,
        case.d,
        atoms_per_class=2,
        weight=WEIGHT,
        batch_expansion=0.2,
        scale=0.3,
        debias=False,
        focus=focus,
        normalize=False,
    )
    loss = made.double().eval()
    loss.latch(z, membership)
    leaf, twin = z.clone().requires_grad_(), z.clone().requires_grad_()
    value = loss(leaf, membership)
    value.backward()

    plain = -reference.objective(twin, membership, loss.dictionary, loss.codes, 0.5, 2 * WEIGHT / len(z))
    linear = sum(
        row @ loss.dictionary @ torch.diag(loss.codes @ share) @ loss.dictionary.T @ row
        for row, share in zip(twin, membership, strict=True)
    ) / len(z)
    changed = linear - attraction(twin, membership, loss.dictionary, loss.codes, focus)
    expected = 0.3 * (plain + 2 * WEIGHT * changed - 0.2 * reference.coding_rate(twin, 0.5))
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    assert leaf.grad is not None
    assert relative(leaf.grad, twin.grad) < 1e-9


def test_the_terms_keep_the_true_mismatch_and_the_steps_the_true_dictionary() -> None:
    generator = seeded(0)
    z, labels = torch.randn(40, 12, generator=generator, dtype=DOUBLE), torch.arange(40) % 4
    plain, focused = (VMCR2Loss(4, 12, atoms_per_class=3, focus=focus).double() for focus in (0.0, 10.0))
    for loss in (plain, focused):
        loss.latch(z, labels)
        loss(z.clone().requires_grad_(), labels)
    assert torch.equal(plain.dictionary, focused.dictionary)
    assert torch.equal(plain.codes, focused.codes)
    assert plain.terms(z, labels).mismatch.item() == focused.terms(z, labels).mismatch.item()
    assert plain.terms(z, labels).objective.item() != focused.terms(z, labels).objective.item()


def test_the_further_the_harder() -> None:
    """One class, one atom: at every distance the pull along the sphere is the linear one times its weight."""
    angles = torch.linspace(0.05, 1.5, 30, dtype=DOUBLE)
    z = torch.stack([angles.cos(), angles.sin()], dim=1)
    pulls = []
    for focus in (0.0, 9.0):
        loss = VMCR2Loss(
            1, 2, atoms_per_class=1, focus=focus, batch_expansion=0.0, normalize=False, debias=True
        ).double()
        loss.latch(z[:1].new_tensor([[1.0, 0.0]]), torch.tensor([0]))
        leaf = z.clone().requires_grad_()
        loss.eval()(leaf, torch.zeros(30, dtype=torch.int64)).backward()
        assert leaf.grad is not None
        pulls.append(leaf.grad)
    # what the same-class pairs push is the same in both: the difference is the attraction's
    by_atom = -4.0 * loss.scale * loss.weight / 30 * z[:, 0]  # along the atom, linear
    difference = (pulls[1] - pulls[0])[:, 0] / by_atom
    expected = 9.0 / (math.log(10.0) * (1 + 9.0 * angles.cos().square())) - 1.0
    assert relative(difference, expected) < 1e-9


def test_a_negative_focus_is_refused() -> None:
    with pytest.raises(ValueError, match="focus"):
        VMCR2Loss(2, 4, atoms_per_class=1, focus=-1.0)
