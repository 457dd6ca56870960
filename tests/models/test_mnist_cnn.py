"""Architecture 1 of the appendix."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from vmcr2.models import MNISTNet, _fused_mnist

# conv 1 -> 32 and 32 -> 64 (3×3, with bias); 12544 -> d and d -> d with bias
CONVOLUTIONS = (1 * 32 * 9 + 32) + (32 * 64 * 9 + 64)


@pytest.mark.parametrize(
    ("dim", "total"),
    [
        (128, 1_641_088),  # 18,816 + (12544·128 + 128 = 1,605,760) + (128² + 128 = 16,512)
        (500, 6_541_816),  # 18,816 + (12544·500 + 500 = 6,272,500) + (500² + 500 = 250,500)
    ],
)
def test_parameter_count(dim: int, total: int) -> None:
    assert CONVOLUTIONS + (12544 * dim + dim) + (dim * dim + dim) == total
    assert sum(parameter.numel() for parameter in MNISTNet(dim).parameters()) == total


def test_the_network_is_the_appendix_line_by_line() -> None:
    net = MNISTNet(10).eval()
    c1_w, c1_b, c2_w, c2_b, l1_w, l1_b, l2_w, l2_b = net.state_dict().values()
    x = torch.randn(3, 1, 32, 32)
    out = functional.conv2d(x, c1_w, c1_b).relu()
    out = functional.conv2d(out, c2_w, c2_b).relu()
    out = functional.max_pool2d(out, 2)
    assert out.shape == (3, 64, 14, 14)
    out = functional.linear(out.reshape(3, 12544), l1_w, l1_b).relu()
    out = functional.linear(out, l2_w, l2_b)
    assert torch.allclose(net(x), out / out.norm(dim=1, keepdim=True), atol=1e-6)


def test_dropout_is_on_in_training_at_the_paper_s_rates_and_off_in_eval() -> None:
    net = MNISTNet(400)
    kept: list[float] = []
    sizes: list[torch.Size] = []

    def look(module: nn.Module, given: tuple[torch.Tensor], result: torch.Tensor) -> None:
        alive = given[0] != 0
        sizes.append(given[0].shape)
        kept.append(((result != 0) & alive).sum().item() / alive.sum().item())

    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(look)
    x = torch.randn(20, 1, 32, 32)
    first, second = net(x), net(x)
    assert sizes[:2] == [(20, 64, 14, 14), (20, 400)]
    # at least 3000 live units each: four standard deviations are under 0.04
    assert kept == pytest.approx([0.75, 0.5, 0.75, 0.5], abs=0.04)
    assert (first - second).norm(dim=1).min() > 0.01
    kept.clear()
    net.eval()
    assert torch.equal(net(x), net(x))
    assert kept == [1.0] * 4


@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (2, 3, 32, 32), (1, 32, 32), (2, 1024)])
def test_another_input_is_refused_with_the_fix(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"needs images of shape \(n, 1, 32, 32\).*padded by 2"):
        MNISTNet(8)(torch.rand(shape))


def test_kernels_take_the_place_of_its_own_layers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fused_mnist, "fits_triton", lambda images: True)  # as on a GPU
    net, images = MNISTNet(8), torch.rand(2, 1, 32, 32)
    assert _fused_mnist.fusable(net.layers, images)
    net.layers[3] = nn.GELU()
    assert not _fused_mnist.fusable(net.layers, images)
