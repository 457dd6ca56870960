"""Pre-activation ResNet-18 of Table 3."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vmcr2.models import PreActResNet18

STAGES = ((64, 64), (64, 128), (128, 256), (256, 512))


def parameters_by_hand(dim: int, in_channels: int = 3) -> int:
    total = in_channels * 64 * 9
    for a, b in STAGES:
        total += 2 * a + a * b * 9 + 2 * b + b * b * 9  # first block: a batch norm before each of its convolutions
        total += a * b if a != b else 0  # its 1×1 shortcut, which has no norm
        total += 2 * (2 * b + b * b * 9)  # second block
    total += 2 * 512  # the last norm
    return total + 512 * 512 + 2 * 512 + 512 * dim + dim  # the head


@pytest.mark.parametrize(("dim", "total"), [(128, 11_495_872), (500, 11_686_708)])
def test_parameter_count(dim: int, total: int) -> None:
    # ResNet-18's 11,176,512 with a 3×3 stem and no norm behind it, no norms in the shortcuts, the first norm of stages
    # 2 to 4 as wide as their input, and one more norm at the end
    backbone = 11_176_512 - 3 * 64 * (49 - 9) - 2 * 64 - 2 * (128 + 256 + 512) - 2 * (64 + 128 + 256) + 2 * 512
    assert backbone == 11_167_040 == total - 263_168 - 513 * dim
    assert parameters_by_hand(dim) == total
    assert sum(parameter.numel() for parameter in PreActResNet18(dim).parameters()) == total


def test_sizes_of_the_stages_for_small_images() -> None:
    net = PreActResNet18(10).eval()
    sizes: list[tuple[int, ...]] = []
    for module in (net.conv1, net.layer1, net.layer2, net.layer3, net.layer4, net.bn):
        module.register_forward_hook(lambda module, given, result: sizes.append(tuple(result.shape[1:])))
    net(torch.rand(1, 3, 32, 32))
    assert sizes == [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4), (512, 4, 4)]
    assert net(torch.rand(1, 3, 24, 40)).shape == (1, 10)  # the pool takes whatever is left


def reference_backbone(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network in eval mode from nothing but its state: x + F(relu(bn(x))), He et al. 2016, Fig. 4e."""

    def active(x: Tensor, name: str) -> Tensor:
        parts = ("weight", "bias", "running_mean", "running_var")
        weight, bias, mean, var = (state[f"{name}.{part}"].reshape(-1, 1, 1) for part in parts)
        return ((x - mean) / (var + 1e-5).sqrt() * weight + bias).relu()

    x = functional.conv2d(x, state["conv1.weight"], padding=1)
    for stage in range(1, 5):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            first = active(x, f"{prefix}.bn1")
            out = functional.conv2d(first, state[f"{prefix}.conv1.weight"], stride=stride, padding=1)
            out = functional.conv2d(active(out, f"{prefix}.bn2"), state[f"{prefix}.conv2.weight"], padding=1)
            shortcut = functional.conv2d(first, state[f"{prefix}.shortcut.weight"], stride=2) if stride == 2 else x
            x = out + shortcut
    return active(x, "bn").mean((2, 3))


def test_values_from_the_state() -> None:
    net = PreActResNet18(6).eval()
    state = net.state_dict()
    for name, value in state.items():  # norms away from 1 and 0, so that each of them matters
        if value.ndim == 1 and not name.startswith("head."):
            value.copy_(0.5 + torch.rand(value.shape))
    x = torch.randn(2, 3, 32, 32)
    expected = reference_backbone(state, x)
    assert (net.backbone(x) - expected).abs().max() < 1e-4 * expected.abs().max()
    hidden = (expected @ net.head[0].weight.T / math.sqrt(1 + 1e-5)).relu()
    z = hidden @ net.head[3].weight.T + net.head[3].bias
    assert (net(x) - z / z.norm(dim=1, keepdim=True)).abs().max() < 1e-4


def test_convolutions_start_as_torch_starts_them() -> None:
    net = PreActResNet18(10)
    weight = net.layer3[1].conv2.weight.detach()  # uniform on ±1/√fan_in
    bound = 1 / math.sqrt(256 * 9)
    assert bound * 0.99 < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
