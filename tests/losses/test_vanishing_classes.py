"""Confident soft labels: a class whose mass vanishes is absent, and nothing overflows on the way there."""

from __future__ import annotations

import pytest
import reference
import torch
from cases import DOUBLE, relative
from seeds import randn
from torch import Tensor

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import class_subspaces, latch, rate_reduction

M, D, K = 9, 16, 5
# softmax of a logit of 16 is 1e-7, the rounding of float32; of 36, that of float64; of 88, the end of float32's range
LOGITS = [10.0, 15.5, 16.5, 25.0, 35.0, 37.0, 44.0, 50.0, 88.0, 91.0, 103.0, 104.0, 200.0]
SINGLE = torch.float32

each_dtype = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=["float32", "float64"])
each_number = pytest.mark.parametrize("present", [1, 3], ids=["one class", "three classes"])


def features(dtype: torch.dtype) -> Tensor:
    return torch.nn.functional.normalize(randn(M, D), dim=1).to(dtype)


def logits(logit: float, present: int, dtype: torch.dtype) -> Tensor:
    """The first ``present`` classes have their samples, the others only what softmax leaves them."""
    own = torch.nn.functional.one_hot(torch.arange(M) % present, K)
    return (logit * own + 0.3 * randn(M, K, seed=1)).to(dtype)


# Over 20 seeds no difference was above 6e-6 in float32 and 1e-12 in float64: values beside R or d, gradients beside the
# largest entry.
def tolerance(dtype: torch.dtype) -> float:
    return 3e-5 if dtype == SINGLE else 1e-10


@each_dtype
@each_number
def test_rates_and_their_gradients_are_those_of_the_equation(present: int, dtype: torch.dtype) -> None:
    for logit in LOGITS:
        check_rates(logit, present, dtype)


def check_rates(logit: float, present: int, dtype: torch.dtype) -> None:
    leaves = [tensor.requires_grad_() for tensor in (features(dtype), logits(logit, present, dtype))]
    twins = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found = rate_reduction(leaves[0], torch.softmax(leaves[1], 1), K)
    expected = reference.rate_reduction(twins[0], torch.softmax(twins[1], 1), 0.5)
    for value, target in zip(found, expected, strict=True):
        assert abs(value.item() - target.item()) < tolerance(dtype) * expected[0].item()
    gradients = torch.autograd.grad(2 * found.expansion - found.compression, leaves)
    targets = torch.autograd.grad(2 * expected[0] - expected[1], twins)
    assert relative(gradients[0], targets[0]) < tolerance(dtype)
    # confident memberships hardly depend on their logits: beside the gradient of an undecided one
    assert (gradients[1] - targets[1]).abs().max() < tolerance(dtype) * expected[0].item()


@each_dtype
@each_number
def test_the_variational_loss_is_that_of_the_equation(present: int, dtype: torch.dtype) -> None:
    for logit in LOGITS:
        check_variational(logit, present, dtype)


def check_variational(logit: float, present: int, dtype: torch.dtype) -> None:
    z, soft = features(dtype), torch.softmax(logits(logit, present, dtype), 1)
    loss = VMCR2Loss(K, D, atoms_per_class=2, weight=7.0, scale=1.0, normalize=False).to(dtype).eval()
    loss.latch(z, torch.arange(M) % K)
    leaf, twin = z.clone().requires_grad_(), z.double().requires_grad_()
    value = loss(leaf, soft)
    value.backward()
    pi, atoms = soft.double(), (loss.dictionary.double(), loss.codes.double())
    rates = reference.variational_expansion(*atoms, pi, 0.5) - reference.variational_compression(atoms[1], pi, D, 0.5)
    penalty = 7.0 / M**2 * reference.mismatch_debiased(twin, pi, *atoms)
    expected = penalty - rates - 0.1 * reference.coding_rate(twin, 0.5)
    expected.backward()
    assert abs(value.item() - expected.item()) < tolerance(dtype) * D
    assert leaf.grad is not None
    assert relative(leaf.grad, twin.grad) < tolerance(dtype)


@each_dtype
@each_number
@pytest.mark.parametrize("debias", [True, False])
def test_training_stays_finite(present: int, dtype: torch.dtype, debias: bool) -> None:
    for logit in LOGITS:
        check_training(logit, present, dtype, debias)


def check_training(logit: float, present: int, dtype: torch.dtype, debias: bool) -> None:
    z, soft = features(dtype), torch.softmax(logits(logit, present, dtype), 1)
    for loss in (VMCR2Loss(K, D, atoms_per_class=2, debias=debias), MCR2Loss(K)):
        loss.to(dtype)
        for call in (loss, loss.surrogate, loss):
            leaf = z.clone().requires_grad_()
            value = call(leaf, soft)
            value.backward()
            assert leaf.grad is not None
            assert torch.isfinite(value)
            assert torch.isfinite(leaf.grad).all()
            assert leaf.grad.abs().max() > 0
        assert all(torch.isfinite(buffer).all() for buffer in loss.buffers())
        assert not loss.fault


@each_dtype
def test_an_absent_class_has_no_subspace_and_no_codes(dtype: torch.dtype) -> None:
    z, soft = features(dtype), torch.softmax(logits(200.0, 3, dtype), 1)
    dictionary, codes = latch(z, soft, K, atoms_per_class=2)
    hard_dictionary, hard_codes = latch(z, torch.arange(M) % 3, K, atoms_per_class=2)
    assert relative(codes, hard_codes) < tolerance(dtype)
    assert codes[:, 3:].abs().max() == 0
    models = [(atoms * own.sum(1)) @ atoms.T for atoms, own in ((dictionary, codes), (hard_dictionary, hard_codes))]
    assert relative(*models) < tolerance(dtype)
    assert class_subspaces(z, soft, K).bases[3:].abs().max() == 0
    classifier = NearestSubspace(K).partial_fit(z[:5], soft[:5]).partial_fit(z[5:], soft[5:])
    for learned in (classifier, NearestSubspace(K).fit(z, soft)):
        assert (learned.predict(torch.randn(200, D)) < 3).all()


def test_the_case_that_was_found() -> None:
    """The loss was inf and its gradient not finite, without a fault; logits of 91 to 103 raised an error."""
    for logit in LOGITS:
        soft = torch.softmax(torch.tensor([[logit, 0.0, 0.0, 0.0, 0.0]] * 8), 1)
        loss = VMCR2Loss(5, 16, atoms_per_class=2)
        z = torch.randn(8, 16, requires_grad=True)
        value = loss(z, soft)
        (gradient,) = torch.autograd.grad(value, z)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        assert not loss.fault
