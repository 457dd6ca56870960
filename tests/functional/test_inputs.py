"""Bad input gets an error that names the argument and the fix; where values are not looked at, a flag is set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from seeds import seeded
from torch import Tensor

from vmcr2 import MCR2Loss, VMCR2Loss
from vmcr2.functional import coding_rate, mismatch, rate_reduction, variational_step, variational_terms

Z = torch.nn.functional.normalize(torch.randn(6, 4, generator=seeded(0)), dim=1)
Y = torch.tensor([0, 1, 2, 0, 1, 2])
ATOMS = torch.eye(4)[:, [0, 1, 2]]
CODES = torch.eye(3)

OBJECTIVES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "rate_reduction": lambda z, labels: rate_reduction(z, labels, 3),
    "mismatch": lambda z, labels: mismatch(z, labels, ATOMS, CODES),
    "variational_terms": lambda z, labels: variational_terms(z, labels, ATOMS, CODES, weight=20.0),
    "variational_step": lambda z, labels: variational_step(z, labels, ATOMS, CODES, weight=20.0),
    "MCR2Loss": lambda z, labels: MCR2Loss(3)(z, labels),
    "VMCR2Loss": lambda z, labels: VMCR2Loss(3, 4, atoms_per_class=1)(z, labels),
    "VMCR2Loss.latch": lambda z, labels: VMCR2Loss(3, 4, atoms_per_class=1).latch(z, labels),
}


def _with(value: float, row: int) -> Tensor:
    z = Z.clone()
    z[row, 1] = value
    return z


BAD: dict[str, tuple[Tensor, Tensor, str]] = {
    "wrong rank": (Z[0], Y, r"z must be a matrix .*\(m, d\)"),
    "three dimensions": (Z[None], Y, r"z must be a matrix"),
    "integer features": (Z.long(), Y, r"z must be floating point.*z\.float\(\)"),
    "empty batch": (Z[:0], Y[:0], r"z is empty"),
    "length mismatch": (Z, Y[:5], r"labels has 5 entries, z has 6 rows"),
    "negative label": (Z, Y - 1, r"labels must lie in 0\.\.2.*row 0 and 1 more"),
    "label too large": (Z, Y + 1, r"labels must lie in 0\.\.2 \(num_classes=3\).*row 2 and 1 more"),
    "float labels": (Z, Y.float(), r"labels must be integers .*labels\.long\(\)"),
    "bool labels": (Z, Y > 0, r"labels must be integers"),
    "integer one-hot": (Z, torch.nn.functional.one_hot(Y), r"labels must be integers .*memberships"),
    "memberships that do not sum": (Z, torch.full((6, 3), 0.5), r"sum to 1 in every row.*row 0 and 5 more"),
    "negative membership": (Z, torch.tensor([[1.5, -0.5, 0.0]] * 6), r"memberships must be ≥ 0"),
    "NaN membership": (Z, torch.full((6, 3), torch.nan), r"memberships"),
    "membership columns": (Z, torch.full((6, 2), 0.5), r"labels has 2 membership columns, expected num_classes=3"),
    "membership rows": (Z, torch.full((5, 3), 1 / 3), r"labels has 5 membership rows"),
    "NaN": (_with(torch.nan, 2), Y, r"z has NaN or inf in row 2"),
    "inf": (_with(torch.inf, 4), Y, r"z has NaN or inf in row 4"),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("fault", BAD)
def test_bad_batches(objective: str, fault: str) -> None:
    z, labels, message = BAD[fault]
    with pytest.raises(ValueError, match=message):
        OBJECTIVES[objective](z, labels)


@pytest.mark.parametrize("eps_sq", [0.0, -1.0, float("nan"), float("inf")])
def test_precision_must_be_positive(eps_sq: float) -> None:
    for call in (
        lambda: coding_rate(Z, eps_sq=eps_sq),
        lambda: rate_reduction(Z, Y, eps_sq=eps_sq),
        lambda: MCR2Loss(3, eps_sq=eps_sq),
        lambda: VMCR2Loss(3, 4, atoms_per_class=1, eps_sq=eps_sq),
        lambda: variational_terms(Z, Y, ATOMS, CODES, weight=1.0, eps_sq=eps_sq),
    ):
        with pytest.raises(ValueError, match="eps_sq must be"):
            call()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="mu and weight set the same thing"):
        VMCR2Loss(3, 4, atoms_per_class=1, mu=1.0, weight=20.0)
    with pytest.raises(ValueError, match="mu and weight set the same thing"):
        variational_terms(Z, Y, ATOMS, CODES, mu=1.0, weight=1.0)
    with pytest.raises(ValueError, match="give mu"):
        variational_terms(Z, Y, ATOMS, CODES)
    with pytest.raises(ValueError, match="weight must be a finite number above 0"):
        VMCR2Loss(3, 4, atoms_per_class=1, weight=-1.0)
    with pytest.raises(ValueError, match="backend must be one of auto"):
        rate_reduction(Z, Y, backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rule for codes must be one of free"):
        VMCR2Loss(3, 4, atoms_per_class=1, codes="sparse")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="z has 4 features per row, expected 5"):
        VMCR2Loss(3, 5, atoms_per_class=1)(Z, Y)
    with pytest.raises(ValueError, match=r"dictionary must be \(d, q\)"):
        mismatch(Z, Y, ATOMS, CODES[:2])
    with pytest.raises(ValueError, match="labels is missing"):
        VMCR2Loss(3, 4, atoms_per_class=1).latch(Z)
    with pytest.raises(ValueError, match="detach"):
        variational_terms(Z, torch.softmax(Z[:, :3], 1).requires_grad_(), ATOMS, CODES, weight=1.0)
    with pytest.raises(ValueError, match="batch_expansion must be"):
        VMCR2Loss(3, 4, atoms_per_class=1).batch_expansion = -0.1
    with pytest.raises(ValueError, match="built with weight: assign weight"):
        VMCR2Loss(3, 4, atoms_per_class=1).mu = 1.0


@pytest.mark.parametrize("name", ["NaN", "inf", "negative label", "label too large", "memberships that do not sum"])
def test_unvalidated_faults_set_the_flag_and_stay(name: str) -> None:
    z, labels, _ = BAD[name]
    fault = torch.zeros((), dtype=torch.bool)
    rate_reduction(Z, Y, 3, validate=False, fault=fault)
    assert not fault
    rate_reduction(z, labels, 3, validate=False, fault=fault)
    assert fault
    rate_reduction(Z, Y, 3, validate=False, fault=fault)
    assert fault  # sticky until the caller clears it

    for loss in (MCR2Loss(3, validate=False), VMCR2Loss(3, 4, atoms_per_class=1, validate=False)):
        loss(Z, Y)
        assert not loss.fault
        loss(z, labels)
        assert loss.fault
        assert "fault" not in loss.state_dict()


def test_a_bad_batch_leaves_the_dictionary_finite() -> None:
    loss = VMCR2Loss(3, 4, atoms_per_class=1, validate=False)
    loss(Z, Y)
    before = loss.dictionary.clone(), loss.codes.clone()
    loss(_with(torch.nan, 1).requires_grad_(), Y)
    assert torch.equal(loss.dictionary, before[0])
    assert torch.equal(loss.codes, before[1])
    assert loss.fault


@pytest.mark.parametrize("scale", [1e10, 1e-10, 1e-30])
def test_the_finite_domain(scale: float) -> None:
    """|z| ≤ 1e10 before normalisation: the same value and a finite gradient."""
    for loss in (MCR2Loss(3), VMCR2Loss(3, 4, atoms_per_class=2)):
        loss.eval() if isinstance(loss, MCR2Loss) else loss.latch(Z, Y)
        expected = loss(Z, Y, update=False) if isinstance(loss, VMCR2Loss) else loss(Z, Y)
        z = (scale * Z).requires_grad_()
        value = loss(z, Y, update=False) if isinstance(loss, VMCR2Loss) else loss(z, Y)
        (gradient,) = torch.autograd.grad(value, z)
        assert value.item() == pytest.approx(expected.item(), rel=1e-5)
        assert torch.isfinite(gradient).all()


def test_zero_rows_have_a_value_and_a_finite_gradient() -> None:
    z = Z.clone()
    z[2] = 0
    z.requires_grad_()
    for loss in (MCR2Loss(3), VMCR2Loss(3, 4, atoms_per_class=2)):
        value = loss(z, Y)
        (gradient,) = torch.autograd.grad(value, z)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() < 1e3


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_numbers_may_be_numpy_s(number: Callable[[float], float]) -> None:
    labels = Y.clone()
    expected = VMCR2Loss(3, 4, atoms_per_class=1, weight=20, eps_sq=1, batch_expansion=2)(Z, labels)
    settings = {"weight": 20, "eps_sq": 1, "batch_expansion": 2}
    loss = VMCR2Loss(3, 4, atoms_per_class=1, **{name: number(value) for name, value in settings.items()})
    assert torch.equal(loss(Z, labels), expected)
    assert type(loss.eps_sq) is type(loss.weight) is float
    assert torch.equal(MCR2Loss(3, eps_sq=number(1))(Z, labels), MCR2Loss(3, eps_sq=1.0)(Z, labels))
    with pytest.raises(ValueError, match="eps_sq must be a finite number above 0, got True"):
        MCR2Loss(3, eps_sq=True)


def test_an_array_is_told_to_become_a_tensor() -> None:
    with pytest.raises(ValueError, match=r"as a tensor; got ndarray: use torch\.as_tensor\(z\)"):
        MCR2Loss(3)(Z.numpy(), Y)
