"""PreAct's stem and the strided shortcuts by Triton against torch in float64, alone and in whole networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from vmcr2.models import (
    PreActResNet18,
    ResNet18,
    _convolutions as convolutions,
    _fused_convolutions as fused,
    _fused_norm,
    _head,
)
from vmcr2.training._bfloat16_weights import BFloat16Weights

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TOLERANCE = {torch.float32: 2e-3, torch.float16: 1e-3, torch.bfloat16: 6e-3}  # float32 is cuDNN's, perhaps in TF32
DTYPES = list(TOLERANCE)
Network = Callable[[int], nn.Module]


def relative(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None
    assert b is not None
    return float(((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12)).detach())


def convolution(*sizes: int, dtype: torch.dtype, last: bool = True, **more: Any) -> nn.Conv2d:
    made = nn.Conv2d(*sizes, bias=False, **more).to(DEVICE, dtype)
    return made.to(memory_format=torch.channels_last) if last else made  # type: ignore[call-overload]


def pixels(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype).contiguous(memory_format=torch.channels_last)


def exact(x: Tensor) -> Tensor:
    return x.detach().double().requires_grad_()


def counted(patch: pytest.MonkeyPatch, function: type[torch.autograd.Function]) -> list[int]:
    """Has an entry for every call of the kernels."""
    called: list[int] = []
    real = function.forward

    def forward(*given: Any) -> Any:
        called.append(1)
        return real(*given)

    patch.setattr(function, "forward", staticmethod(forward))
    return called


@pytest.mark.parametrize("shape", [(1, 32, 32), (37, 32, 32), (3, 6, 12), (1, 2, 2), (600, 32, 32)])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("stem", [fused.Stem, fused.BlockedStem])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_stems(
    shape: tuple[int, int, int],
    last: bool,
    stem: type[torch.autograd.Function],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    called = counted(monkeypatch, stem)
    n, height, width = shape
    x = torch.randn(n, 3, height, width, device=DEVICE).to(dtype)
    if stem is fused.Stem:
        size, convolve, geometry = 3, convolutions.convolve_small_stem, {"padding": 1}
    else:
        size, convolve, geometry = 7, convolutions.convolve_stem, {"stride": 2, "padding": 3}
    conv = convolution(3, 64, size, dtype=dtype, last=last, **geometry)
    weight = exact(conv.weight)
    y, wanted = convolve(conv, x), conv2d(x.double(), weight, **geometry)
    assert len(called) == (dtype != torch.float32)
    assert y.dtype == dtype
    assert not called or y.is_contiguous(memory_format=torch.channels_last)
    assert relative(y, wanted) < TOLERANCE[dtype]
    upstream = torch.randn(y.shape, device=DEVICE).to(dtype)
    y.backward(upstream)
    wanted.backward(upstream.double())
    assert conv.weight.grad is not None
    assert relative(conv.weight.grad, weight.grad) < TOLERANCE[dtype]
    assert conv.weight.grad.stride() == conv.weight.stride()


@pytest.mark.parametrize(
    "shape", [(33, 64, 128, 16, 16), (300, 128, 256, 4, 4), (1100, 256, 512, 2, 2), (90, 64, 128, 6, 10)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_shortcut(shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    called = counted(monkeypatch, fused.Shortcut)
    n, channels, out, height, width = shape
    x = pixels(n, channels, height, width, dtype=dtype).requires_grad_()
    conv = convolution(channels, out, 1, stride=2, dtype=dtype)
    other = convolution(channels, 64, 3, stride=2, padding=1, dtype=dtype)
    x64, weight, other64 = exact(x), exact(conv.weight), exact(other.weight)
    same, y = convolutions.convolve_shortcut(conv, x, x)
    read = other(same)
    wanted, read64 = conv2d(x64, weight, stride=2), conv2d(x64, other64, stride=2, padding=1)
    assert len(called) == (dtype != torch.float32)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert relative(y, wanted) < TOLERANCE[dtype]
    upstreams = [pixels(*z.shape, dtype=dtype) for z in (y, read)]
    torch.autograd.backward((y, read), upstreams)
    torch.autograd.backward((wanted, read64), [upstream.double() for upstream in upstreams])
    assert relative(x.grad, x64.grad) < TOLERANCE[dtype]
    assert relative(conv.weight.grad, weight.grad) < TOLERANCE[dtype]
    assert (
        relative(other.weight.grad, other64.grad) < 10 * TOLERANCE[dtype]
    )  # torch's own, from the x that it was given


def test_a_shortcut_whose_input_nobody_else_reads() -> None:
    x = pixels(70, 64, 8, 8, dtype=torch.bfloat16).requires_grad_()
    conv = convolution(64, 128, 1, stride=2, dtype=torch.bfloat16)
    x64 = exact(x)
    _, y = convolutions.convolve_shortcut(conv, x, x)
    upstream = pixels(*y.shape, dtype=torch.bfloat16)
    y.backward(upstream)
    conv2d(x64, conv.weight.detach().double(), stride=2).backward(upstream.double())
    assert relative(x.grad, x64.grad) < TOLERANCE[torch.bfloat16]


def test_what_is_frozen_gets_no_gradient() -> None:
    x = pixels(70, 64, 8, 8, dtype=torch.bfloat16)
    conv, stem = (
        convolution(64, 128, 1, stride=2, dtype=torch.bfloat16),
        convolution(3, 64, 3, padding=1, dtype=torch.bfloat16),
    )
    same, y = convolutions.convolve_shortcut(conv, x, x)
    assert not same.requires_grad
    assert y.requires_grad
    conv.weight.requires_grad_(False)
    stem.weight.requires_grad_(False)
    assert not convolutions.convolve_small_stem(stem, pixels(2, 3, 8, 8, dtype=torch.bfloat16)).requires_grad
    x.requires_grad_()
    _, y = convolutions.convolve_shortcut(conv, x, x)
    y.float().sum().backward()
    assert x.grad is not None
    assert conv.weight.grad is None


def test_gradients_are_the_same_bits_every_time() -> None:
    torch.manual_seed(0)
    images = torch.randn(200, 3, 32, 32, device=DEVICE).bfloat16()
    stem = convolution(3, 64, 3, padding=1, dtype=torch.bfloat16)
    conv = convolution(64, 128, 1, stride=2, dtype=torch.bfloat16)
    found = []
    for _ in range(3):
        _, y = convolutions.convolve_shortcut(conv, convolutions.convolve_small_stem(stem, images), images)
        found.append(torch.autograd.grad(y.float().square().sum(), (stem.weight, conv.weight)))
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))


@pytest.mark.parametrize("where", ["eval", "gradient of the images", "four colours"])
def test_torch_s_own_stem_elsewhere(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = counted(monkeypatch, fused.Stem)
    colours = 4 if where == "four colours" else 3
    conv = convolution(colours, 64, 3, padding=1, dtype=torch.bfloat16).train(where != "eval")
    x = pixels(2, colours, 8, 8, dtype=torch.bfloat16).requires_grad_(where == "gradient of the images")
    assert torch.equal(convolutions.convolve_small_stem(conv, x), conv(x))
    assert not called


@pytest.mark.parametrize("where", ["eval", "odd", "few pixels", "few channels"])
def test_torch_s_own_shortcut_elsewhere(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = counted(monkeypatch, fused.Shortcut)
    out = 64 if where == "few channels" else 128
    side = 7 if where == "odd" else 8
    conv = convolution(64, out, 1, stride=2, dtype=torch.bfloat16).train(where != "eval")
    x = pixels(3 if where == "few pixels" else 100, 64, side, side, dtype=torch.bfloat16)
    same, y = convolutions.convolve_shortcut(conv, x, x)
    assert same is x
    assert torch.equal(y, conv(x))
    assert not called


def step(net: nn.Module, images: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Features and gradient of a step in bfloat16, as the engine makes it."""
    half = BFloat16Weights(net)
    with torch.autocast(DEVICE, torch.bfloat16):
        z = half(images.bfloat16())
    (z * weight).sum().backward()
    half.bring_back()
    return z.detach(), gradient_of(net)


def gradient_of(net: nn.Module) -> Tensor:
    """Of all parameters, each divided by its root mean square so that none is too small to count."""
    gradients = [p.grad.double().flatten() for p in net.parameters() if p.grad is not None]
    return torch.cat([g / g.square().mean().sqrt().clamp_min(1e-12) for g in gradients])


@pytest.mark.parametrize(
    ("maker", "shortcuts", "stem"), [(ResNet18, 2, fused.BlockedStem), (PreActResNet18, 3, fused.Stem)]
)
def test_whole_networks(
    maker: Network, shortcuts: int, stem: type[torch.autograd.Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels are as far from float64 as torch's own. For 300 images ResNet's last shortcut is too small."""
    torch.manual_seed(0)
    net = maker(64).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images, weight = torch.rand(300, 3, 32, 32, device=DEVICE), torch.randn(300, 64, device=DEVICE)
    plain, precise = copy.deepcopy(net), copy.deepcopy(net).double()
    called = counted(monkeypatch, fused.Shortcut), counted(monkeypatch, stem)
    ours = step(net, images, weight)
    assert (len(called[0]), len(called[1])) == (shortcuts, 1)
    monkeypatch.setattr(convolutions, "_trains_in_half", lambda conv, x: False)
    torchs = step(plain, images, weight)
    assert (len(called[0]), len(called[1])) == (shortcuts, 1)
    for module in (convolutions, _fused_norm, _head):  # whose kernels compute in float32
        monkeypatch.setattr(module, "fits_triton", lambda x: False)
    z = precise(images.double())
    (z * weight).sum().backward()
    for a, b, c in zip(ours, torchs, (z.detach(), gradient_of(precise)), strict=True):
        assert relative(a, c) < 1.3 * relative(b, c) + 0.01
