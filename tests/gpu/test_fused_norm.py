"""BatchNorm with ReLU, residual and pool in one operation against torch's own parts, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from vmcr2.models import _fused_norm as fused, build

pytestmark = pytest.mark.gpu


def norms(channels: int) -> tuple[nn.BatchNorm2d, nn.BatchNorm2d]:
    torch.manual_seed(1)
    ours = nn.BatchNorm2d(channels).cuda()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    return ours, copy.deepcopy(ours).double()


def random(*shape: int) -> Tensor:
    return (3 + 2 * torch.randn(*shape, device="cuda")).contiguous(memory_format=torch.channels_last)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12))


SHAPES = [(64, 64, 16, 16), (2000, 512, 1, 1), (7, 256, 2, 2), (33, 128, 4, 6), (2000, 64, 16, 16)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["relu", "residual", "alone", "pool"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_batch_norm_and_what_follows(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    if kind == "pool" and shape[2] % 2:
        pytest.skip("odd images are pooled by torch")
    torch.manual_seed(0)
    ours, exact = norms(shape[1])
    x, r = random(*shape).to(dtype).requires_grad_(), random(*shape).to(dtype).requires_grad_()
    x64, r64 = (t.detach().double().requires_grad_() for t in (x, r))
    if kind == "relu":
        y, wanted = fused.norm_relu(ours, x), relu(exact(x64))
    elif kind == "residual":
        y, wanted = fused.norm_relu(ours, x, r), relu(exact(x64) + r64)
    elif kind == "alone":
        y, wanted = fused.norm_alone(ours, x), exact(x64)
    else:
        y, wanted = fused.norm_relu_pool(ours, x), max_pool2d(relu(exact(x64)), 3, 2, 1)
    tolerance = 1e-5 if dtype == torch.float32 else 6e-3
    assert "FusedNorm" in str(y.grad_fn)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert relative(y.detach(), wanted.detach()) < tolerance
    upstream = torch.randn_like(y)
    y.backward(upstream)
    wanted.backward(upstream.double())
    pairs = [(x.grad, x64.grad), (ours.weight.grad, exact.weight.grad), (ours.bias.grad, exact.bias.grad)]
    pairs += [(r.grad, r64.grad)] if kind == "residual" else []
    for got, reference in pairs:
        assert got is not None
        assert reference is not None
        assert relative(got, reference) < 50 * tolerance  # sums of half a million terms that cancel
    for name in ("running_mean", "running_var"):
        assert relative(getattr(ours, name), getattr(exact, name)) < 1e-5
    assert ours.num_batches_tracked == 1


@pytest.mark.parametrize("name", ["resnet18", "preact18"])
def test_a_network_is_the_same_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = build(name, dim=32, input_shape=(3, 32, 32)).cuda()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    other = copy.deepcopy(network)
    images = torch.rand(16, 3, 32, 32, device="cuda")
    weight = torch.randn(16, 32, device="cuda")
    torch.backends.cudnn.allow_tf32, before = False, torch.backends.cudnn.allow_tf32
    z = network(images)
    (z * weight).sum().backward()
    monkeypatch.setattr(fused, "fits_triton", lambda x: False)
    plain = other(images)
    (plain * weight).sum().backward()
    torch.backends.cudnn.allow_tf32 = before
    assert relative(z, plain) < 1e-4
    for a, b in zip(network.parameters(), other.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert relative(a.grad, b.grad) < 2e-2
    for key, value in network.state_dict().items():
        assert torch.allclose(value, other.state_dict()[key], rtol=1e-3, atol=1e-4), key
