"""Focus: the logarithm of a sample's share in its class's atoms in place of the share."""

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
        mixed = codes @ share
        model = dictionary @ torch.diag(mixed) @ dictionary.T
        energy, largest = row @ model @ row, mixed.amax()
        total = total + largest * torch.log(1 + focus * energy / largest) / math.log(1 + focus)
    return total / len(z)


def latched(case: Case, focus: float, **options: object) -> VMCR2Loss:
    made = VMCR2Loss(case.k, case.d, atoms_per_class=2, weight=WEIGHT, focus=focus, **options)  # type: ignore[arg-type]
    loss = made.double()
    loss.latch(case.features(), case.membership())
    return loss


@pytest.mark.parametrize("focus", [0.5, 10.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient_are_those_of_the_formula(case: Case, focus: float) -> None:
    z, membership = case.features(), case.membership()
    loss = latched(case, focus, batch_expansion=0.2, scale=0.3, debias=False, normalize=False).eval()
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


@pytest.mark.parametrize("atoms", ["all", "own", "own, flat", "blocks"])
@pytest.mark.parametrize("focus", [0.0, 10.0])
def test_a_trainer_s_step_has_the_gradient_of_one_s_own_loop(atoms: str, focus: float) -> None:
    """``surrogate`` computes it by itself: from all atoms, from those that a class uses, and in blocks."""
    options = {"own, flat": {"codes": "flat", "codes_trace": 4.0}, "blocks": {"block": True}}.get(atoms, {})
    labels = torch.arange(60) % 4
    z = torch.randn(60, 12, generator=seeded(3), dtype=DOUBLE)
    gradients = []
    for way in ("forward", "surrogate"):
        made = VMCR2Loss(4, 12, atoms_per_class=3, focus=focus, **options)  # type: ignore[arg-type]
        loss = made.double()
        loss.latch(z, labels)
        if atoms == "all":
            loss.codes.add_(0.3)  # every class uses every atom
        leaf = z.clone().requires_grad_()
        if way == "forward":
            loss(leaf, labels).backward()
        else:
            loss.surrogate(leaf, labels).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert relative(gradients[1], gradients[0]) < 1e-9


@pytest.mark.parametrize("options", [{}, {"block": True}], ids=str)
def test_the_steps_on_the_dictionary_do_not_see_it(options: dict[str, object]) -> None:
    z, labels = torch.randn(40, 12, generator=seeded(0), dtype=DOUBLE), torch.arange(40) % 4
    made = [VMCR2Loss(4, 12, atoms_per_class=3, focus=focus, **options) for focus in (0.0, 10.0)]  # type: ignore[arg-type]
    plain, focused = (loss.double() for loss in made)
    gradients = []
    for loss in (plain, focused):
        loss.latch(z, labels)
        leaf = z.clone().requires_grad_()
        loss(leaf, labels).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert torch.equal(plain.dictionary, focused.dictionary)
    assert torch.equal(plain.codes, focused.codes)
    assert relative(gradients[1], gradients[0]) > 0.01


def test_the_further_the_harder() -> None:
    """One class, one atom: at every distance the pull along the sphere is the linear one times its weight."""
    angles = torch.linspace(0.05, 1.5, 30, dtype=DOUBLE)
    z = torch.stack([angles.cos(), angles.sin()], dim=1)
    pulls = []
    for focus in (0.0, 9.0):
        made = VMCR2Loss(1, 2, atoms_per_class=1, focus=focus, batch_expansion=0.0, normalize=False, debias=True)
        loss = made.double()
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


def test_a_class_without_codes_pulls_nobody() -> None:
    z, labels = torch.randn(20, 6, generator=seeded(1), dtype=DOUBLE), torch.arange(20) % 2
    gradients = []
    for focus in (0.0, 3.0):
        loss = VMCR2Loss(2, 6, atoms_per_class=2, focus=focus, batch_expansion=0.0).double().eval()
        loss.latch(z, labels)
        loss.codes.zero_()
        leaf = z.clone().requires_grad_()
        loss(leaf, labels).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert relative(gradients[1], gradients[0]) < 1e-12  # that of the pairs alone, and no NaN of 0/0


@pytest.mark.parametrize("focus", [-1.0, math.nan, math.inf])
def test_what_is_no_focus_is_refused(focus: float) -> None:
    with pytest.raises(ValueError, match="focus must be between 0 and"):
        VMCR2Loss(2, 4, atoms_per_class=1, focus=focus)
