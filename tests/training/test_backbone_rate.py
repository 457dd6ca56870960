"""The backbone's own learning rate: a part of the network's, at every step; or 0, and then nothing of it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2._shared import UserError
from vmcr2.functional import normalize_rows
from vmcr2.models import MLP, Featurizer
from vmcr2.objectives import CESettings, VMCR2Settings
from vmcr2.training import Engine, Loop, Numerics, OptimSettings, Rows, Step, epoch_order
from vmcr2.training._bfloat16_weights import BFloat16Weights

CLASSES, DIM, TOTAL, BATCH = 4, 8, 40, 20


def network(*, head: bool = True) -> Featurizer:
    backbone = nn.Sequential(nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3))
    if not head:
        backbone.append(nn.Linear(12, DIM))
    return Featurizer(backbone, DIM, 12 if head else None)


def step(make: Callable[[], nn.Module] = network, objective: str = "ce", **optim: Any) -> Step:
    """On a seed of its own, so that two steps differ in their settings only."""
    torch.manual_seed(SEED)
    made = make()
    labels = torch.arange(TOTAL) % CLASSES
    x = torch.randn(TOTAL, 6) + labels[:, None]
    settings = CESettings() if objective == "ce" else VMCR2Settings(atoms_per_class=2)
    return Step(
        made,
        settings.build(CLASSES, DIM, labels, BATCH),
        Rows(x, labels),
        OptimSettings(**{"lr": 0.1, "momentum": 0.0, "epochs": 3} | optim),
        batch_size=BATCH,
        dim=DIM,
        seed=0,
        numerics=Numerics(torch.device("cpu")),
    )


def in_backbone(made: Step) -> list[bool]:
    assert isinstance(made.network, Featurizer)
    own = {id(value) for value in made.network.backbone_parameters().values()}
    return [id(parameter) in own for parameter in made.parameters]


def moves(made: Step, rates: tuple[float, ...]) -> list[Tensor]:
    """What steps at these rates change in every parameter. The batch and the dropout are the same in every call."""
    made.begin(0)
    before = [parameter.detach().clone() for parameter in made.parameters]
    for draw, rate in enumerate(rates):
        torch.manual_seed(SEED + draw)
        made.index.copy_(torch.arange(BATCH))
        made.rate.fill_(rate)
        made()
    return [new.detach() - old for new, old in zip(made.parameters, before, strict=True)]


@pytest.mark.parametrize("optim", [{}, {"weight_decay": 0.1}, {"optimizer": "adamw"}, {"momentum": 0.9}])
@pytest.mark.parametrize("part", [0.25, 3.0])
def test_a_step_of_the_backbone_is_that_part_of_a_whole_one(optim: dict[str, Any], part: float) -> None:
    whole, own = moves(step(**optim), (0.05,)), step(backbone_rate=part, **optim)
    found = moves(own, (0.05,))
    assert sum(in_backbone(own)) == 3
    for slower, expected, actual in zip(in_backbone(own), whole, found, strict=True):
        assert expected.abs().max() > 1e-5
        if slower:  # rounding of a weight near 1 is 1e-7
            assert torch.allclose(actual, part * expected, rtol=1e-3, atol=1e-6)
        else:
            assert torch.equal(actual, expected), "the head and the objective learn with lr"


def test_the_rate_follows_the_schedule() -> None:
    made = step(backbone_rate=0.5)
    assert all(not moved.any() for moved in moves(made, (0.0,)))
    slow, fast = moves(step(backbone_rate=0.5), (0.01,)), moves(step(backbone_rate=0.5), (0.04,))
    for one, other in zip(slow, fast, strict=True):
        assert torch.allclose(4 * one, other, rtol=1e-3, atol=1e-6)
    rates = {group.get("backbone", False): group["lr"] for group in made.optimizer.param_groups}
    assert isinstance(rates[True], Tensor), "a captured step reads the rate where it is"
    made.rate.fill_(0.08)
    address = rates[True].data_ptr()
    made()
    assert rates[True].item() == pytest.approx(0.04)
    assert rates[True].data_ptr() == address
    assert rates[False] is made.rate


def test_a_whole_rate_changes_nothing() -> None:
    """Neither the groups nor a bit of the weights; without the setting there is nothing to compute either."""
    made, plain = step(backbone_rate=1.0, weight_decay=0.1), step(PlainFeaturizer, weight_decay=0.1)
    assert [len(group["params"]) for group in made.optimizer.param_groups] == [
        len(group["params"]) for group in plain.optimizer.param_groups
    ]
    assert all(group["lr"] is made.rate for group in made.optimizer.param_groups)
    for one, other in zip(moves(made, (0.1, 0.05)), moves(plain, (0.1, 0.05)), strict=True):
        assert torch.equal(one, other)


class PlainFeaturizer(nn.Module):
    """The same layers, and no word of a backbone."""

    def __init__(self) -> None:
        super().__init__()
        made = network()
        self.body, self.top = made.backbone, made.head

    def forward(self, x: Tensor) -> Tensor:
        assert self.top is not None
        return normalize_rows(self.top(self.body(x)))


@pytest.mark.parametrize("decay_all", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_every_parameter_that_learns_is_in_one_group(rate: float, decay_all: bool) -> None:
    made = step(backbone_rate=rate, decay_all=decay_all, weight_decay=0.1)
    grouped = [own for group in made.optimizer.param_groups for own in group["params"]]
    learning = [own for own, backbone in zip(made.parameters, in_backbone(made), strict=True) if rate or not backbone]
    assert sorted(map(id, grouped)) == sorted(map(id, learning))
    decaying = {id(own) for group in made.optimizer.param_groups if group["weight_decay"] for own in group["params"]}
    assert decaying == {id(own) for own in learning if decay_all or own.ndim > 1}


def backbone_of(made: Step) -> dict[str, Tensor]:
    assert isinstance(made.network, Featurizer)
    return {name: value.clone() for name, value in made.network.backbone.state_dict().items()}


def loop_of(made: Step) -> Loop:
    return Loop(made, Engine(made, capture="eager"), lambda epoch: epoch_order(TOTAL, 0, epoch))


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("objective", ["ce", "vmcr2"])
def test_a_frozen_backbone_is_the_same_after_a_run(objective: str, average: float) -> None:
    made = step(objective=objective, backbone_rate=0.0, average=average, weight_decay=0.1, momentum=0.9)
    before, head = backbone_of(made), made.network.get_parameter("head.0.weight").detach().clone()

    def trained(epoch: int, seconds: float) -> None:
        with made.measured():
            made.embed()

    loop_of(made).run(0, trained=trained)
    assert not torch.equal(made.network.get_parameter("head.0.weight"), head)
    assert made.network.get_buffer("head.1.num_batches_tracked") > 0
    assert all(torch.equal(value, before[name]) for name, value in backbone_of(made).items())
    made.settle()
    assert all(torch.equal(value, before[name]) for name, value in backbone_of(made).items())
    assert all(value.requires_grad for value in made.network.parameters()), "the run is over: nothing is frozen"


def test_measuring_in_between_does_not_wake_it() -> None:
    made = step(backbone_rate=0.0, average=0.9)
    made.begin(0)
    for _ in range(2):
        assert isinstance(made.network, Featurizer)
        assert made.network.training
        assert not any(part.training for part in made.network.backbone.modules())
        made.embed()
        with made.measured():
            pass


def test_averaged_weights_get_statistics_where_the_backbone_learns() -> None:
    """The other side of the test above: with a rate, the statistics of every layer are recomputed."""
    made = step(backbone_rate=0.1, average=0.9)
    loop_of(made).run(0)
    before = backbone_of(made)
    made.settle()
    assert not torch.equal(backbone_of(made)["1.running_mean"], before["1.running_mean"])


def test_frozen_weights_get_no_gradient_by_their_bfloat16_copies() -> None:
    made = network()
    made.freeze_backbone()
    half = BFloat16Weights(made)
    with torch.autocast("cpu", torch.bfloat16):
        z = half(torch.randn(BATCH, 6))
    (z * torch.randn_like(z)).sum().backward()
    half.bring_back()
    learning = {name for name, value in made.named_parameters() if value.grad is not None}
    assert learning == {name for name, _ in made.named_parameters() if name.startswith("head.")}


def test_layers_that_share_a_weight_have_one_bfloat16_copy() -> None:
    """Networks of people's own do this; the gradient is that of both uses."""
    layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6, bias=False))
    layers[1].weight = layers[0].weight
    half, x = BFloat16Weights(layers), torch.randn(BATCH, 6)
    assert list(half.masters) == ["0.weight", "0.bias"]
    with torch.autocast("cpu", torch.bfloat16):
        half(x).square().sum().backward()
    half.bring_back()
    found = layers[0].weight.grad
    assert found is not None
    layers.zero_grad()
    layers(x).square().sum().backward()
    assert layers[0].weight.grad is not None
    assert (found - layers[0].weight.grad).norm() < 0.05 * layers[0].weight.grad.norm()


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_network_without_a_backbone_has_no_such_rate(rate: float) -> None:
    with pytest.raises(UserError, match=rf"^backbone_rate is {rate:g}, but MLP has no backbone: leave it out$"):
        step(lambda: MLP(6, DIM), backbone_rate=rate)


def headless() -> nn.Module:
    return network(head=False)


def test_without_a_head_the_whole_network_is_the_backbone() -> None:
    with pytest.raises(UserError, match=r"^backbone_rate is 0, but the network makes its dim features without a head"):
        step(headless, backbone_rate=0.0)
    whole, own = moves(step(headless), (0.1,)), step(headless, backbone_rate=0.5)
    assert in_backbone(own) == [True] * 5 + [False] * 2, "cross-entropy's head has weights and biases"
    for slower, expected, actual in zip(in_backbone(own), whole, moves(own, (0.1,)), strict=True):
        assert torch.allclose(actual, (0.5 if slower else 1.0) * expected, rtol=1e-3, atol=1e-6)


def test_it_is_at_least_0() -> None:
    with pytest.raises(UserError, match=r"^backbone_rate must be at least 0, got -0.1"):
        OptimSettings(backbone_rate=-0.1)
