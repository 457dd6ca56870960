"""What every network must keep: one table of networks × properties."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from seeds import SEED
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vmcr2.functional import normalize_rows
from vmcr2.models import MLP, Featurizer, MNISTNet, PreActResNet18, ResNet18

D = 24


def small_backbone() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MNISTNet": (lambda: MNISTNet(D), (1, 32, 32)),
    "ResNet18": (lambda: ResNet18(D), (3, 32, 32)),
    "PreActResNet18": (lambda: PreActResNet18(D), (3, 32, 32)),
    "Featurizer": (lambda: Featurizer(small_backbone(), D, 12), (3, 8, 8)),
    "Featurizer without a head": (
        lambda: Featurizer(nn.Sequential(nn.Flatten(), nn.Linear(192, D)), D, None),
        (3, 8, 8),
    ),
    "MLP": (lambda: MLP(3 * 8 * 8, D, (40, 30)), (3, 8, 8)),
    "MLP with batch norm": (lambda: MLP(3 * 8 * 8, D, (40, 30), batch_norm=True), (3, 8, 8)),
}
Case = tuple[nn.Module, Tensor]


@pytest.fixture(params=NETWORKS)
def case(request: pytest.FixtureRequest) -> Case:
    """A fresh network and a batch of noise for it, the same in every test."""
    make, shape = NETWORKS[request.param]
    torch.manual_seed(SEED + 1)
    return make(), torch.randn(6, *shape)


def on_the_sphere(z: Tensor, tolerance: float = 1e-6) -> bool:
    return bool(((z.norm(dim=1) - 1).abs() < tolerance).all())


@pytest.mark.parametrize("training", [True, False])
def test_rows_are_unit_and_differ(case: Case, training: bool) -> None:
    net, x = case
    z = net.train(training)(x)
    assert z.shape == (6, D) == (6, net.dim)
    assert z.dtype == torch.float32
    assert on_the_sphere(z)
    assert (z[1:] - z[:-1]).norm(dim=1).min() > 1e-3  # not one constant


def test_a_higher_precision_is_kept_and_a_lower_one_raised(case: Case) -> None:
    net, x = case
    expected = net.eval()(x)
    double = net.double()(x.double())
    assert double.dtype == torch.float64
    assert on_the_sphere(double, 1e-14)
    assert (double - expected).abs().max() < 1e-4
    half = net.bfloat16()(x.bfloat16())
    assert half.dtype == torch.float32
    assert on_the_sphere(half)


def test_bfloat16_autocast_is_close_to_float32(case: Case) -> None:
    net, x = case
    expected = net.eval()(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = net(x)
    assert z.dtype == torch.float32
    assert on_the_sphere(z)
    assert not torch.equal(z, expected)  # the network itself did run in bfloat16
    assert (z * expected).sum(1).min() > 0.999  # at least 0.9998 over 25 seeds


def test_the_sphere_is_reached_outside_autocast(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = case
    seen: list[tuple[bool, torch.dtype]] = []

    def spy(z: Tensor) -> Tensor:
        seen.append((torch.is_autocast_enabled("cpu"), z.dtype))
        return normalize_rows(z)

    monkeypatch.setattr("vmcr2.models._head.normalize_rows", spy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        net(x)
    assert seen == [(False, torch.float32)]


def test_channels_last_gives_the_same_values(case: Case) -> None:
    net, x = case
    expected = net.eval()(x)
    last = x.to(memory_format=torch.channels_last)
    assert last.stride() != x.stride() or x.shape[1] == 1
    z = net.to(memory_format=torch.channels_last)(last)  # type: ignore[call-overload]
    assert (z - expected).abs().max() < 1e-5


def test_eval_mode_is_deterministic_and_row_by_row(case: Case) -> None:
    net, x = case
    net.eval()
    z = net(x)
    assert torch.equal(net(x), z)
    assert (net(x.flip(0)).flip(0) - z).abs().max() < 1e-5
    assert (net(x[:1]) - z[:1]).abs().max() < 1e-5  # neighbours do not matter, and a single row is taken


def test_the_input_is_left_alone(case: Case) -> None:
    net, x = case
    before = x.clone()
    net(x)
    assert torch.equal(x, before)


def test_gradients_reach_every_parameter(case: Case) -> None:
    net, x = case
    weights = torch.randn(6, D)
    (net(x) * weights).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        # well above the 1e-9 or so that rounding leaves where the true gradient is 0 (a bias before a batch norm)
        assert parameter.grad.norm() > 1e-4, name


def test_statistics_change_in_train_mode_only(case: Case) -> None:
    net, x = case
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    before = copy.deepcopy(dict(net.named_buffers()))
    net.eval()(x)
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, before[name]), name
    net.train()(x)
    for name, buffer in net.named_buffers():
        assert not torch.equal(buffer, before[name]), name
    assert len(before) == 3 * len(norms)  # nothing else moves


def test_initialisation_depends_on_the_seed_only(case: Case, request: pytest.FixtureRequest) -> None:
    make, _ = NETWORKS[request.node.callspec.params["case"]]
    first, _ = case  # made after this seed too
    torch.manual_seed(SEED + 1)
    second = make().state_dict()
    torch.manual_seed(SEED + 2)
    other = make().state_dict()
    for name, value in first.state_dict().items():
        assert torch.equal(value, second[name]), name
    assert any(not torch.equal(value, other[name]) for name, value in second.items())


@pytest.mark.parametrize("network", [MNISTNet, ResNet18, PreActResNet18, lambda dim: MLP(4, dim)])
@pytest.mark.parametrize("dim", [0, -3, 2.0, True])
def test_a_bad_dim_is_named(network: Callable[[object], nn.Module], dim: object) -> None:
    with pytest.raises(ValueError, match=r"dim must be at least 1 and whole"):
        network(dim)


@pytest.mark.parametrize("network", [ResNet18, PreActResNet18])
def test_other_channels(network: Callable[..., nn.Module]) -> None:
    net = network(D, in_channels=1).eval()
    assert net(torch.rand(2, 1, 32, 32)).shape == (2, D)
    with pytest.raises(ValueError, match="in_channels must be at least 1"):
        network(D, in_channels=0)
