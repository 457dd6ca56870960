"""A surrogate makes the step that the loss makes, with its gradient, and leaves the value out."""

from __future__ import annotations

import copy

import pytest
import torch
from test_contract import DOUBLE, LOSSES, K, Loss, batch

from vmcr2 import MCR2Loss, VMCR2Loss


def made(name: str) -> Loss:
    loss = LOSSES[name]().double()
    if isinstance(loss, VMCR2Loss):
        loss.latch(*batch(DOUBLE, seed=9))
    return loss.train()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_it_is_the_loss_without_its_value(name: str, soft: bool, ahead: bool) -> None:
    loss = made(name)
    if soft and "block=True" in repr(loss):
        pytest.skip("takes integer labels only, and says so")
    if soft and isinstance(loss, MCR2Loss) and loss.memory:
        pytest.skip("a memory takes integer labels")
    twin = copy.deepcopy(loss)
    for seed in range(3):  # the dictionary moves along
        z, hard = batch(DOUBLE, seed=seed)
        labels = torch.nn.functional.one_hot(hard, K).double() * 0.7 + 0.3 / K if soft else hard
        left, right = z.clone().requires_grad_(), z.clone().requires_grad_()
        loss(left, labels).backward()
        value = twin.surrogate(right, labels, twin.look_ahead(labels) if ahead else None)  # type: ignore[arg-type]
        value.backward()
        assert value.item() == 0.0
        assert left.grad is not None
        assert right.grad is not None
        assert torch.allclose(left.grad, right.grad, rtol=1e-9, atol=1e-12)
        for a, b in zip(loss.buffers(), twin.buffers(), strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-12) if a.is_floating_point() else torch.equal(a, b)


@pytest.mark.parametrize("name", LOSSES)
def test_absent_and_single_classes(name: str) -> None:
    loss = made(name)
    twin = copy.deepcopy(loss)
    z, _ = batch(DOUBLE)
    labels = torch.tensor([0] * 25 + [1] * 14 + [3])  # 2 is absent, 3 has one sample
    left, right = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss(left, labels).backward()
    twin.surrogate(right, labels).backward()
    assert left.grad is not None
    assert right.grad is not None
    assert torch.allclose(left.grad, right.grad, rtol=1e-9, atol=1e-12)


def test_in_eval_mode_it_is_the_loss_itself() -> None:
    loss = made("VMCR2").eval()
    assert isinstance(loss, VMCR2Loss)
    z, labels = batch(DOUBLE)
    before = loss.dictionary.clone()
    assert loss.surrogate(z, labels).item() == loss(z, labels).item()
    assert torch.equal(loss.dictionary, before)


def test_bad_values_are_named_as_by_the_loss() -> None:
    z, labels = batch()
    z[3, 1] = torch.nan
    for loss in (MCR2Loss(K), made("VMCR2").float()):
        with pytest.raises(ValueError, match="z has NaN or inf in row 3"):
            loss.surrogate(z, labels)


def test_unvalidated_bad_values_set_the_flag_and_keep_the_dictionary() -> None:
    z, labels = batch()
    z[3, 1] = torch.nan
    loss = VMCR2Loss(K, z.shape[1], atoms_per_class=3, validate=False)
    loss.latch(*batch(seed=9))
    before = loss.dictionary.clone()
    loss.surrogate(z.requires_grad_(), labels)
    assert loss.fault
    assert torch.equal(loss.dictionary, before)
    exact = MCR2Loss(K, validate=False)
    exact.surrogate(z, labels)
    assert exact.fault


def test_the_first_call_latches() -> None:
    loss = VMCR2Loss(K, 12, atoms_per_class=3)
    z, labels = batch()
    loss.surrogate(z.requires_grad_(), labels).backward()
    assert loss.latched


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("buffers", [torch.float32, DOUBLE])
def test_features_of_another_precision_than_the_buffers(name: str, ahead: bool, buffers: torch.dtype) -> None:
    loss = made(name).to(buffers)
    twin = copy.deepcopy(loss)
    z, labels = batch(torch.float32 if buffers == DOUBLE else DOUBLE)
    left, right = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss(left, labels).backward()
    twin.surrogate(right, labels, twin.look_ahead(labels) if ahead else None).backward()  # type: ignore[arg-type]
    assert left.grad is not None
    assert right.grad is not None
    assert torch.allclose(left.grad, right.grad, rtol=1e-3, atol=1e-5)
    for a, b in zip(loss.buffers(), twin.buffers(), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-5) if a.is_floating_point() else torch.equal(a, b)


def test_what_was_made_ahead_of_the_first_latching_is_made_again() -> None:
    """Otherwise the first step would be taken from a dictionary that is no longer there."""
    z, labels = torch.randn(60, 8), torch.arange(60) % 3
    gradients = []
    for ahead in (False, True):
        loss = VMCR2Loss(3, 8, atoms_per_class=2)
        x = z.clone().requires_grad_()
        loss.surrogate(x, labels, loss.look_ahead(labels) if ahead else None).backward()
        gradients.append((x.grad, loss.dictionary.clone(), loss.codes.clone()))
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
