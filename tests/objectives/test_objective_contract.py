"""What every objective promises the training loop, as a table: objectives × properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from seeds import SEED
from sum_objective import SumSettings
from torch import Tensor, nn

from vmcr2.objectives import (
    OBJECTIVES,
    CEMCR2Settings,
    CESettings,
    CEVMCR2Settings,
    MCR2Settings,
    Objective,
    ObjectiveSettings,
    VMCR2Settings,
)

M, D, K = 60, 16, 4

CASES: dict[str, ObjectiveSettings] = {
    "vmcr2": VMCR2Settings(atoms_per_class=3),
    "vmcr2, Eq. 7": VMCR2Settings(atoms_per_class=3, batch_expansion=0.0, mu=0.5, weight=None),
    "vmcr2, flat": VMCR2Settings(atoms_per_class=2, codes="flat", codes_trace=3.0, debias=True),
    "vmcr2, by steps": VMCR2Settings(atoms_per_class=2, latch_every=7, latch_unit="steps", cap_codes_step=False),
    "vmcr2, in blocks": VMCR2Settings(atoms_per_class=3, block=True, debias=True),
    "vmcr2, in blocks that latch themselves": VMCR2Settings(atoms_per_class=3, block=True, latch_every=0),
    "mcr2": MCR2Settings(),
    "mcr2 with a memory": MCR2Settings(memory=2 * M),
    "ce": CESettings(),
    "ce+mcr2": CEMCR2Settings(),
    "ce+mcr2 with a memory": CEMCR2Settings(memory=2 * M, rate_weight=0.1),
    "ce+vmcr2": CEVMCR2Settings(atoms_per_class=3),
    "ce+vmcr2, in blocks": CEVMCR2Settings(atoms_per_class=3, block=True),
    "another ε²": MCR2Settings(eps_sq=0.1, loss_scale=0.5),
    "a sum of two": SumSettings(rate_weight=0.1),
}


@pytest.fixture(params=CASES)
def settings(request: pytest.FixtureRequest) -> ObjectiveSettings:
    return CASES[request.param]


def batch(number: int = 0, size: int = M) -> tuple[Tensor, Tensor]:
    """Unit features around class directions, and their labels."""
    generator = torch.Generator().manual_seed(1000 * SEED + number)
    labels = torch.randperm(size, generator=generator) % K
    centres = torch.randn(K, D, generator=torch.Generator().manual_seed(SEED))
    z = centres[labels] + 2 * torch.randn(size, D, generator=generator)
    return nn.functional.normalize(z, dim=1), labels


def built(settings: ObjectiveSettings) -> Objective:
    """Twice the same: what is random in it is drawn by the suite's seed. Latched, if it latches."""
    torch.manual_seed(SEED)
    objective = settings.build(K, D, batch(99, 10 * M)[1], M)
    objective.module.train()
    if objective.latch_due(0, 3):
        objective.latch(*batch(99, 10 * M))
    return objective


def gradient(objective: Objective, z: Tensor, labels: Tensor, *, ahead: bool = True, **more: Any) -> Tensor:
    leaf = z.clone().requires_grad_()
    value = objective.surrogate(leaf, labels, objective.look_ahead(labels) if ahead else None, **more)
    assert value.shape == ()
    value.backward()
    assert leaf.grad is not None
    return leaf.grad


def state(objective: Objective) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in objective.module.state_dict().items()}


def assert_same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(value, b[name]) for name, value in a.items())


def test_every_objective_is_in_the_table() -> None:
    assert {type(settings) for settings in CASES.values()} >= set(OBJECTIVES.values())
    for name, kind in OBJECTIVES.items():
        assert kind.name == name
        assert kind.title


def test_its_settings_build_it_and_stay_with_it(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    assert objective.settings is settings
    assert objective.num_classes == K
    assert isinstance(objective.module, nn.Module)
    assert {"eps_sq", "loss_scale"} <= set(settings.flat())
    assert not any(known.default is dataclasses.MISSING for known in settings.known().values())
    assert list(settings.contradictions_with(M)) == []


def test_a_step_has_a_finite_gradient(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    for number in range(4):
        found = gradient(objective, *batch(number))
        assert torch.isfinite(found).all()
        assert found.abs().max() > 0
    for name, parameter in objective.module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_looking_ahead_changes_no_gradient(settings: ObjectiveSettings) -> None:
    one, two = built(settings), built(settings)
    for number in range(3):
        with_it, without = gradient(one, *batch(number)), gradient(two, *batch(number), ahead=False)
        assert (with_it - without).norm() <= 1e-4 * with_it.norm()
    for name, value in state(one).items():
        assert torch.allclose(value.double(), state(two)[name].double(), atol=1e-5), name


@pytest.mark.parametrize("name", [name for name, settings in CASES.items() if not settings.flat().get("memory")])
def test_a_step_follows_the_gradient_of_the_loss(name: str) -> None:
    """At the state that the step has made. A memory is the exception: it scales the gradient of R_c on purpose."""
    objective = built(CASES[name])
    z, labels = batch()
    found = gradient(objective, z, labels)
    leaf = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(objective.loss(leaf, labels), leaf)
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_the_loss_is_a_scalar_and_changes_nothing(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    gradient(objective, *batch())
    before = state(objective)
    with torch.no_grad():
        value = objective.loss(*batch(1))
        assert value.shape == ()
        assert torch.isfinite(value)
        assert objective.loss(*batch(1)) == value
    assert_same_state(state(objective), before)


def test_the_terms_are_those_of_the_batch(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    before = state(objective)
    with torch.no_grad():
        terms = objective.terms(*batch())
        loss = objective.loss(*batch())
    assert {"loss", "expansion", "compression", "batch_delta_r"} <= set(terms)
    for name, value in terms.items():
        assert value.shape == (), name
        assert torch.isfinite(value), name
    assert terms["loss"].item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-5)
    delta = (terms["expansion"] - terms["compression"]).item()
    assert terms["batch_delta_r"].item() == pytest.approx(delta, abs=1e-4)
    assert delta > 0
    rates = objective.rates(*batch())
    assert rates.delta.item() == pytest.approx(delta, abs=1e-4)
    assert_same_state(state(objective), before)


def test_all_of_its_state_travels(settings: ObjectiveSettings) -> None:
    one = built(settings)
    for number in range(3):
        gradient(one, *batch(number))
    torch.manual_seed(SEED + 1)
    two = settings.build(K, D, batch(99, 10 * M)[1], M)
    two.module.load_state_dict(state(one))
    two.module.train()
    assert_same_state(state(two), state(one))
    for number in range(3, 6):
        assert torch.equal(gradient(one, *batch(number)), gradient(two, *batch(number)))
    assert_same_state(state(two), state(one))
    with torch.no_grad():
        assert torch.equal(one.loss(*batch()), two.loss(*batch()))


def test_it_predicts_where_it_has_a_head(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    z, _ = batch()
    with torch.no_grad():
        predicted = objective.predict(z)
    assert (predicted is None) == (objective.head is None)
    if predicted is not None and objective.head is not None:
        assert predicted.shape == (M,)
        assert predicted.dtype == torch.int64
        assert 0 <= predicted.min() <= predicted.max() < K
        assert torch.equal(predicted, objective.head(z).argmax(1))
        owned = {id(parameter) for parameter in objective.module.parameters()}
        assert {id(parameter) for parameter in objective.head.parameters()} <= owned, "or it would not be trained"


def test_it_latches_when_it_says(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    due = [steps for steps in range(40) if objective.latch_due(steps, 3)]
    assert all(isinstance(objective.latch_due(steps, 3), bool) for steps in range(3))
    before = state(objective)
    weights = [parameter.detach().clone() for parameter in objective.module.parameters()]
    objective.latch(*batch(98, 10 * M))
    for mine, parameter in zip(weights, objective.module.parameters(), strict=True):
        assert torch.equal(mine, parameter)  # what the optimiser trains is not latched
    if not due:
        assert_same_state(state(objective), before)
    else:
        assert due[0] == 0, "always once before the first step"
        assert any(not torch.equal(value, before[name]) for name, value in state(objective).items())
        twin = built(settings)
        twin.latch(*batch(98, 10 * M))
        assert_same_state(state(twin), state(objective))  # by the features alone


def test_a_fault_is_a_flag_that_stays(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    for number in range(2):
        gradient(objective, *batch(number))
    if objective.fault is None:
        return
    assert objective.fault.dtype == torch.bool
    assert objective.fault.shape == ()
    assert not objective.fault
    z, labels = batch(2)
    z[3, 2] = torch.nan
    leaf = z.requires_grad_()
    objective.surrogate(leaf, labels, objective.look_ahead(labels)).backward()
    assert objective.fault
    gradient(objective, *batch(3))
    assert objective.fault
    assert objective.not_finite() == [], "one bad batch does not spoil the state"


def test_what_is_not_finite_in_it_is_named(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    assert objective.not_finite() == []
    floats = {name: value for name, value in objective.module.state_dict().items() if value.is_floating_point()}
    for name, value in floats.items():
        before = value.clone()
        value.view(-1)[0] = torch.inf
        assert objective.not_finite() == [name]
        value.copy_(before)
    assert objective.not_finite() == []


def test_it_weighs_samples_where_it_says_so(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    if not settings.weighs_samples:
        return
    z, labels = batch()
    weights = (torch.arange(M) % 3).float()  # every third counts for nothing, every third twice
    found = gradient(objective, z, labels, weights=weights)
    assert (found[weights == 0] == 0).all()
    twice = torch.cat([torch.where(weights >= 1)[0], torch.where(weights == 2)[0]])
    repeated = gradient(objective, z[twice], labels[twice])
    expected = torch.zeros_like(z).index_add_(0, twice, repeated)
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_what_it_shows_are_tensors_of_its_state(settings: ObjectiveSettings) -> None:
    objective = built(settings)
    state = objective.module.state_dict()
    for name, value in objective.shown().items():
        (found,) = (own for path, own in state.items() if path.split(".")[-1] == name)  # of a part, if it has parts
        assert torch.equal(value, found)


@pytest.mark.parametrize(
    "make",
    [lambda: MCR2Settings(memory=M - 1), lambda: MCR2Settings(memory=1)],
)
def test_what_does_not_go_with_the_batch_size_is_said(make: Callable[[], ObjectiveSettings]) -> None:
    (problem,) = make().contradictions_with(M)
    assert f"at least batch_size {M}" in problem
