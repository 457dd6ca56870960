"""Networks of two parts: what the backbone is, freezing it, and starting it from another network's state."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vmcr2._shared import UserError
from vmcr2.models import MLP, Featurizer, HasBackbone, PreActResNet18, ResNet18, load_into


def small(dim: int = 5, width: int | None = 6) -> Featurizer:
    backbone = nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1)
    )
    return Featurizer(backbone, dim, width)


NETWORKS: dict[str, Callable[..., HasBackbone]] = {"resnet18": ResNet18, "preact18": PreActResNet18, "own": small}


@pytest.fixture(params=NETWORKS)
def make(request: pytest.FixtureRequest) -> Callable[..., HasBackbone]:
    return NETWORKS[request.param]


def snapshot(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def changed(net: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}


def trained(net: nn.Module, steps: int = 2) -> None:
    """In training mode, with a gradient; frozen parts must not see it."""
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        z = net(torch.randn(6, 3, 32, 32))
        (z * torch.randn_like(z)).sum().backward()
        optimizer.step()


def test_backbone_and_head_are_the_whole_network(make: Callable[..., HasBackbone]) -> None:
    net = make(5)
    head = {name for name, _ in net.named_parameters() if name.startswith("head.")}
    assert len(head) == 5
    assert set(net.backbone_parameters()) | head == {name for name, _ in net.named_parameters()}
    assert not set(net.backbone_parameters()) & head
    assert len(net.backbone_state()) == len(net.state_dict()) - 8  # the head's BatchNorm has three buffers
    name, value = next(iter(net.backbone_state().items()))
    with torch.no_grad():
        value.fill_(3.0)
    assert (net.backbone_state()[name] == 3).all(), "the state shares memory with the network"


def test_a_frozen_backbone_stays_as_it_is_while_the_head_trains(make: Callable[..., HasBackbone]) -> None:
    net = make(5)
    net.freeze_backbone()
    before = snapshot(net)
    trained(net)
    assert changed(net, before) == {name for name in before if name.startswith("head.")}
    assert all(value.grad is None for value in net.backbone_parameters().values())
    thawed = snapshot(net)
    net.thaw_backbone()
    trained(net)
    moved = changed(net, thawed)
    assert set(net.backbone_parameters()) <= moved
    assert {name for name in before if name.endswith("running_mean")} <= moved


def test_a_frozen_backbone_is_in_evaluation_mode_whoever_calls_train() -> None:
    net = small()
    x = torch.rand(4, 3, 8, 8)
    net.freeze_backbone()
    for _ in range(2):
        net.eval()
        expected = net.backbone(x)
        net.train()
        assert net.training
        assert net.head is not None
        assert net.head[1].training
        assert not any(part.training for part in net.backbone.modules())
        assert torch.equal(net.backbone(x), expected), "dropout is off"
    net.thaw_backbone()
    assert all(part.training for part in net.modules())


def test_thawing_gives_back_what_required_gradients_before() -> None:
    net = small()
    stem = net.get_parameter("backbone.0.weight").requires_grad_(False)  # a person's own decision
    net.freeze_backbone()
    net.freeze_backbone()  # twice is once
    net.thaw_backbone()
    assert [name for name, value in net.named_parameters() if not value.requires_grad] == ["backbone.0.weight"]
    assert not stem.requires_grad
    net.thaw_backbone()  # and of what is not frozen, nothing


def test_a_frozen_copy_is_frozen() -> None:
    net = small()
    net.freeze_backbone()
    other = copy.deepcopy(net).train()
    assert not any(part.training for part in other.backbone.modules())
    other.thaw_backbone()
    assert not net.get_parameter("backbone.0.weight").requires_grad


def test_a_network_without_a_head_cannot_be_frozen() -> None:
    net = small(6, None)
    assert not net.has_head
    with pytest.raises(
        UserError, match=r"^backbone_rate is 0, but the network makes its dim features without a head, "
    ):
        net.freeze_backbone()
    assert all(value.requires_grad for value in net.parameters())


def test_all_of_a_saved_network(make: Callable[..., HasBackbone]) -> None:
    saved, net = make(5), make(5)
    trained(saved, 1)
    for partial in (True, False):
        other = make(5)
        assert load_into(other, saved.state_dict(), partial=partial) == []
        assert changed(other, snapshot(saved)) == set()
    assert changed(net, snapshot(saved)) != set()


def test_with_another_dim_the_last_layer_is_left(make: Callable[..., HasBackbone]) -> None:
    saved, net = make(5), make(7)
    trained(saved, 1)
    before = snapshot(net)
    assert load_into(net, saved.state_dict(), partial=True) == ["head.3.weight", "head.3.bias"]
    now, given = net.state_dict(), saved.state_dict()
    for name, value in now.items():
        assert torch.equal(value, before[name] if name.startswith("head.3") else given[name]), name


@pytest.mark.parametrize(
    ("net", "saved", "partial", "sentence"),
    [
        (small(), ResNet18(5), True, "of another network, so start from a run of the same model: missing backbone.0.w"),
        (
            small(),
            ResNet18(5),
            False,
            "of another network, so start from a run of the same model: missing backbone.0.w",
        ),
        (ResNet18(5), ResNet18(5, in_channels=1), True, r"conv1\.weight \(64, 1, 7, 7\) instead of \(64, 3, 7, 7\)"),
        (small(5), small(7), False, r"have other shapes, .*: head\.3\.weight \(7, 512\) instead of \(5, 512\)"),
        (MLP(4, 3), small(), True, r"of another network, .*: missing layers\.0\.weight"),
        (MLP(4, 3), MLP(4, 5), False, r"layers\.4\.weight \(5, 256\) instead of \(3, 256\)"),
    ],
)
def test_another_network_is_refused_and_nothing_is_copied(
    net: nn.Module, saved: nn.Module, partial: bool, sentence: str
) -> None:
    before = snapshot(net)
    with pytest.raises(UserError, match=sentence):
        load_into(net, saved.state_dict(), partial=partial)
    assert changed(net, before) == set()


def test_a_network_without_a_backbone_takes_what_fits() -> None:
    saved, net = MLP(4, 3, (8, 8)), MLP(4, 5, (8, 8))
    assert load_into(net, saved.state_dict(), partial=True) == ["layers.4.weight", "layers.4.bias"]
    assert torch.equal(net.get_parameter("layers.2.weight"), saved.get_parameter("layers.2.weight"))
