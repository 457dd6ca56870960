"""ResNet-18: torchvision's names, shapes, start and values, and the paper's head."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vmcr2.models import ResNet18

WIDTHS = (64, 128, 256, 512)
NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def torchvision_shapes(in_channels: int = 3) -> dict[str, tuple[int, ...]]:
    """Every entry of torchvision's resnet18 state, ``fc`` apart, by rule and in its order."""
    shapes: dict[str, tuple[int, ...]] = {}

    def norm(name: str, width: int) -> None:
        shapes.update({f"{name}.{part}": () if part == "num_batches_tracked" else (width,) for part in NORM})

    shapes["conv1.weight"] = (64, in_channels, 7, 7)
    norm("bn1", 64)
    before = 64
    for stage, width in enumerate(WIDTHS, start=1):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            shapes[f"{prefix}.conv1.weight"] = (width, before, 3, 3)
            norm(f"{prefix}.bn1", width)
            shapes[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            norm(f"{prefix}.bn2", width)
            if before != width:
                shapes[f"{prefix}.downsample.0.weight"] = (width, before, 1, 1)
                norm(f"{prefix}.downsample.1", width)
            before = width
    return shapes


def made_up_state(in_channels: int = 3) -> dict[str, Tensor]:
    """A state as torchvision would save it, ``fc`` included, unlike any initialisation."""
    state: dict[str, Tensor] = {}
    for name, shape in torchvision_shapes(in_channels).items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
        elif len(shape) == 4:
            state[name] = torch.randn(shape) / math.sqrt(math.prod(shape[1:]))
        else:
            state[name] = 0.5 + torch.rand(shape)
    state["fc.weight"], state["fc.bias"] = torch.randn(1000, 512), torch.randn(1000)
    return state


def reference_backbone(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """ResNet-18 in eval mode from nothing but its state: He et al. 2016, Table 1, in torchvision's names."""

    def norm(x: Tensor, name: str) -> Tensor:
        weight, bias, mean, var = (state[f"{name}.{part}"].reshape(-1, 1, 1) for part in NORM[:4])
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    x = norm(functional.conv2d(x, state["conv1.weight"], stride=2, padding=3), "bn1").relu()
    x = functional.max_pool2d(x, 3, stride=2, padding=1)
    for stage in range(1, 5):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            out = functional.conv2d(x, state[f"{prefix}.conv1.weight"], stride=stride, padding=1)
            out = norm(out, f"{prefix}.bn1").relu()
            out = norm(functional.conv2d(out, state[f"{prefix}.conv2.weight"], padding=1), f"{prefix}.bn2")
            if stride == 2:
                x = functional.conv2d(x, state[f"{prefix}.downsample.0.weight"], stride=2)
                x = norm(x, f"{prefix}.downsample.1")
            x = (out + x).relu()
    return x.mean((2, 3))


@pytest.mark.parametrize(
    ("dim", "in_channels", "total"),
    [
        # torchvision's 11,689,512 less fc's 512·1000 + 1000, and the head's 512² + 2·512 + 512·d + d
        (128, 3, 11_689_512 - 513_000 + 512 * 512 + 2 * 512 + 512 * 128 + 128),
        (500, 3, 11_689_512 - 513_000 + 512 * 512 + 2 * 512 + 512 * 500 + 500),
        # two channels fewer in the 7×7 stem
        (128, 1, 11_689_512 - 513_000 - 2 * 64 * 49 + 512 * 512 + 2 * 512 + 512 * 128 + 128),
    ],
)
def test_parameter_count(dim: int, in_channels: int, total: int) -> None:
    net = ResNet18(dim, in_channels)
    assert sum(parameter.numel() for parameter in net.parameters()) == total


def test_the_counts_that_are_reported() -> None:
    stem = 3 * 64 * 49 + 2 * 64
    stage1 = 4 * 64 * 64 * 9 + 4 * 2 * 64
    # conv a->b, three convs b->b, the 1×1 shortcut a->b, five norms
    later = [a * b * 9 + 3 * b * b * 9 + a * b + 5 * 2 * b for a, b in ((64, 128), (128, 256), (256, 512))]
    assert stem + stage1 + sum(later) == 11_176_512
    parameters = ResNet18(500).named_parameters()
    assert sum(p.numel() for name, p in parameters if not name.startswith("head.")) == 11_176_512
    assert 11_176_512 + 263_168 + 513 * 128 == 11_505_344
    assert 11_176_512 + 263_168 + 513 * 500 == 11_696_180


def test_the_backbone_s_state_is_torchvision_s() -> None:
    expected = torchvision_shapes()
    assert len(expected) == 120  # torchvision's 122 less fc.weight and fc.bias
    state = ResNet18(10).state_dict()
    backbone = {name: tuple(value.shape) for name, value in state.items() if not name.startswith("head.")}
    assert list(backbone.items()) == list(expected.items())
    assert [name for name in state if name not in backbone] == [
        "head.0.weight",
        *(f"head.1.{part}" for part in NORM),
        "head.3.weight",
        "head.3.bias",
    ]


def test_convolutions_start_as_in_torchvision() -> None:
    net = ResNet18(10)
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight.detach()
            fan_out = weight.shape[0] * weight.shape[2] * weight.shape[3]
            assert weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.04), name
            assert weight.abs().max() > 3 * weight.std(), f"{name} is not normal"
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all(), name
            assert (module.bias == 0).all(), name


def test_sizes_of_the_stages_for_small_images() -> None:
    net = ResNet18(10).eval()
    sizes: list[tuple[int, ...]] = []
    for module in (net.conv1, net.layer1, net.layer2, net.layer3, net.layer4):
        module.register_forward_hook(lambda module, given, result: sizes.append(tuple(result.shape[1:])))
    net(torch.rand(1, 3, 32, 32))
    assert sizes == [(64, 16, 16), (64, 8, 8), (128, 4, 4), (256, 2, 2), (512, 1, 1)]
    assert net(torch.rand(1, 3, 64, 48)).shape == (1, 10)


@pytest.mark.parametrize("size", [32, 65])
def test_values_from_a_loaded_state(size: int) -> None:
    net, state = ResNet18(6).eval(), made_up_state()
    net.load_backbone(state)
    x = torch.randn(3, 3, size, size)
    expected = reference_backbone(state, x)
    assert (net.backbone(x) - expected).abs().max() < 1e-4 * expected.abs().max()
    # the head on top, from its own state: Linear without bias, batch norm at its start (mean 0, variance 1), ReLU
    hidden = (expected @ net.head[0].weight.T / math.sqrt(1 + 1e-5)).relu()
    z = hidden @ net.head[3].weight.T + net.head[3].bias
    assert (net(x) - z / z.norm(dim=1, keepdim=True)).abs().max() < 1e-4


def test_load_backbone_copies_the_backbone_and_nothing_else() -> None:
    net, state = ResNet18(6), made_up_state()
    before = copy.deepcopy(net.state_dict())
    assert net.load_backbone(state) is None
    after = net.state_dict()
    for name, value in after.items():
        assert torch.equal(value, before[name] if name.startswith("head.") else state[name]), name
    state["conv1.weight"].zero_()
    assert after["conv1.weight"].abs().sum() > 0  # a copy, not the same memory


def test_load_backbone_takes_files_older_than_num_batches_tracked() -> None:
    net, state = ResNet18(6), made_up_state()
    net.load_backbone({name: value for name, value in state.items() if not name.endswith("num_batches_tracked")})
    assert torch.equal(net.layer4[1].bn2.running_var, state["layer4.1.bn2.running_var"])
    assert net.layer4[1].bn2.num_batches_tracked == 0


def test_load_backbone_names_what_does_not_fit_and_copies_nothing() -> None:
    net = ResNet18(6)
    before = copy.deepcopy(net.state_dict())
    missing = made_up_state()
    del missing["layer3.0.downsample.0.weight"], missing["fc.weight"]
    with pytest.raises(ValueError, match=r"missing layer3\.0\.downsample\.0\.weight; unexpected nothing"):
        net.load_backbone(missing)
    with pytest.raises(ValueError, match=r"missing nothing; unexpected layer5\.weight, epoch"):
        net.load_backbone({**made_up_state(), "layer5.weight": torch.ones(1), "epoch": torch.tensor(3)})
    renamed = {f"module.{name}": value for name, value in made_up_state().items()}
    # 100 entries are required (120 less 20 counters); eight are named
    with pytest.raises(ValueError, match=r"missing conv1\.weight, .* and 92 more; unexpected module\.conv1\.weight, "):
        net.load_backbone(renamed)
    with pytest.raises(ValueError, match=r"conv1\.weight \(64, 1, 7, 7\) instead of \(64, 3, 7, 7\)"):
        net.load_backbone(made_up_state(in_channels=1))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("training", [True, False])
def test_torchvision_s_own_network_gives_the_same(training: bool) -> None:
    models = pytest.importorskip("torchvision.models")
    theirs = models.resnet18(weights=None)
    theirs.load_state_dict(made_up_state())
    assert sum(parameter.numel() for parameter in theirs.parameters()) == 11_689_512
    ours = ResNet18(6)
    ours.load_backbone(theirs.state_dict())
    names = [name for name in theirs.state_dict() if not name.startswith("fc.")]
    assert names == list(torchvision_shapes())
    theirs.fc = nn.Identity()
    theirs.train(training)
    ours.train(training)
    x = torch.randn(4, 3, 64, 64)
    expected = theirs(x)
    assert (ours.backbone(x) - expected).abs().max() <= 1e-6 * expected.abs().max()
    for name in names:  # running statistics too
        assert torch.allclose(ours.state_dict()[name], theirs.state_dict()[name]), name
