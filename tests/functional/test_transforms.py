"""`torch.func`: first derivatives are those of autograd; what cannot work says so. And inference mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from seeds import seeded
from torch import Tensor

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import (
    coding_rate,
    latch,
    mismatch,
    normalize_rows,
    rate_reduction,
    variational_logdet,
    variational_terms,
)

Z = torch.nn.functional.normalize(torch.randn(12, 4, generator=seeded(0), dtype=torch.float64), dim=1)
Y = torch.arange(12) % 3
SOFT = torch.softmax(torch.randn(12, 3, generator=seeded(1), dtype=torch.float64), 1)
ATOMS, CODES = latch(Z, Y, 3, atoms_per_class=1)


LATCHED = VMCR2Loss(3, 4, atoms_per_class=1).double()
LATCHED.latch(Z, Y)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "coding_rate": coding_rate,
    "gram": lambda z: coding_rate(z, backend="gram"),
    "rate_reduction": lambda z: rate_reduction(z, Y, 3).delta,
    "memberships": lambda z: rate_reduction(z, SOFT).delta,
    "mismatch": lambda z: mismatch(z, Y, ATOMS, CODES),
    "variational_terms": lambda z: variational_terms(z, Y, ATOMS, CODES, weight=20.0).objective,
    "MCR2Loss": lambda z: MCR2Loss(3)(z, Y),
    "MCR2Loss in eval mode": lambda z: MCR2Loss(3).eval()(z, Y),
    "VMCR2Loss in eval mode": lambda z: LATCHED.eval()(z, Y),
    "VMCR2Loss without update": lambda z: LATCHED.train()(z, Y, update=False),
    "normalize_rows": lambda z: normalize_rows(z)[:, 0].sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    function = FUNCTIONS[name]
    leaf = Z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function(leaf), leaf)
    assert expected.abs().max() > 1e-6
    found, value = torch.func.grad_and_value(function)(Z)
    assert value.item() == pytest.approx(function(Z).item(), rel=1e-12, abs=1e-14)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-14)
    assert torch.allclose(torch.func.jacrev(function)(Z), expected, rtol=1e-10, atol=1e-14)
    _, pull = torch.func.vjp(function, Z)
    assert torch.allclose(pull(torch.tensor(2.0, dtype=Z.dtype))[0], 2 * expected, rtol=1e-10, atol=1e-14)


def test_gradients_through_a_network() -> None:
    network = torch.nn.Linear(5, 4).double()
    x = torch.randn(12, 5, generator=seeded(2), dtype=torch.float64)
    parameters = {name: part.detach() for name, part in network.named_parameters()}

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return MCR2Loss(3)(torch.func.functional_call(network, parameters, (x,)), Y)

    found = torch.func.grad(loss)(parameters)
    MCR2Loss(3)(network(x), Y).backward()
    for name, part in network.named_parameters():
        assert torch.allclose(found[name], part.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "normalize_rows"])
def test_second_derivatives_are_an_error(name: str) -> None:
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.func.grad(lambda z: torch.func.grad(FUNCTIONS[name])(z).square().sum())(Z)


def test_the_loop_has_second_derivatives() -> None:
    def rate(z: Tensor) -> Tensor:
        return coding_rate(z, backend="loop")

    hessian = torch.func.jacrev(torch.func.grad(rate))(Z)
    leaf = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(rate(leaf), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(gradient[2, 1], leaf)
    assert torch.allclose(hessian[2, 1], expected)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "normalize_rows"])
def test_vmap_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.vmap cannot be used here.*in a loop"):
        torch.func.vmap(FUNCTIONS[name])(torch.stack([Z, Z]))
    with pytest.raises(RuntimeError, match=r"torch\.vmap cannot be used here"):
        torch.func.vmap(torch.func.grad(FUNCTIONS[name]))(torch.stack([Z, Z]))


def test_vmap_where_nothing_is_looked_at() -> None:
    stack = torch.stack([Z, Z.flip(1), Z[:, :1].expand(-1, 4)])
    found = torch.func.vmap(lambda z: coding_rate(z, backend="loop", validate=False))(stack)
    assert torch.allclose(found, torch.stack([coding_rate(z) for z in stack]))
    assert torch.allclose(torch.func.vmap(normalize_rows)(stack), torch.stack([normalize_rows(z) for z in stack]))
    found = torch.func.vmap(variational_logdet)(stack)
    assert torch.allclose(found, torch.stack([variational_logdet(z) for z in stack]))


@pytest.mark.parametrize(
    "loss",
    [
        VMCR2Loss(3, 4, atoms_per_class=1).double(),
        VMCR2Loss(3, 4, atoms_per_class=1, self_latch=False).double(),
        VMCR2Loss(3, 4, atoms_per_class=1, block=True).double(),
        MCR2Loss(3, memory=20, dim=4).double(),
    ],
    ids=["self-latching", "not self-latching", "blocks", "memory"],
)
def test_losses_that_change_themselves_say_so(loss: torch.nn.Module) -> None:
    before = {name: part.clone() for name, part in loss.named_buffers()}
    with pytest.raises(RuntimeError, match=r"changes its own buffers.*call loss\.eval\(\) first"):
        torch.func.grad(lambda z: loss(z, Y))(Z)
    for name, part in loss.named_buffers():
        assert torch.equal(part, before[name]), name
    loss(Z.clone().requires_grad_(), Y).backward()  # it still works


def gradient(loss: VMCR2Loss) -> Tensor:
    z = Z.clone().requires_grad_()
    loss(z, Y).backward()
    assert z.grad is not None
    return z.grad


def test_latching_inside_inference_mode() -> None:
    def built() -> VMCR2Loss:
        return VMCR2Loss(3, 4, atoms_per_class=1).double()

    expected = built()
    expected.latch(Z, Y)
    inside = built()
    with torch.inference_mode():
        inside.latch(Z * 1, Y)
        born = built()  # its buffers too
        born.latch(Z, Y)
        moved = VMCR2Loss(3, 4, atoms_per_class=1).double()
        moved.latch([(Z * 1, Y)])
        features = Z * 1
    outside = built()
    outside.latch(features, Y)
    wanted = gradient(expected)
    for loss in (inside, born, moved, outside):
        assert not any(part.is_inference() for part in loss.buffers())
        assert torch.allclose(gradient(loss), wanted)
        loss.load_state_dict(expected.state_dict())


def test_a_classifier_of_inference_mode_goes_on_outside() -> None:
    with torch.inference_mode():
        classifier = NearestSubspace(num_classes=3).fit(Z * 1, Y)
        added = NearestSubspace(num_classes=3).partial_fit(Z * 1, Y)
    assert torch.equal(classifier.predict(Z), added.predict(Z))
    assert not classifier.bases.is_inference()
    added.partial_fit(Z, Y)
    classifier.load_state_dict(NearestSubspace(num_classes=3).fit(Z, Y).state_dict())
