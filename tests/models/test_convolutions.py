"""The shortcuts compute what nn.Conv2d computes, and so do their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vmcr2.models._convolutions import blocked_stem, convolve_3x3, convolve_stem


def gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weight).sum(), inputs)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(32, 32), (8, 12), (2, 2)])
def test_the_stem_over_blocks(channels: int, shape: tuple[int, int]) -> None:
    conv = nn.Conv2d(channels, 5, 7, stride=2, padding=3, bias=False).double()
    x = torch.randn(3, channels, *shape, dtype=torch.float64, requires_grad=True)
    plain, blocked = conv(x), blocked_stem(conv.weight, x)
    assert torch.allclose(plain, blocked, atol=1e-12)
    for a, b in zip(gradients(plain, x, conv.weight), gradients(blocked, x, conv.weight), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_the_stem_of_an_odd_image_is_the_plain_one() -> None:
    conv = nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False)
    x = torch.randn(2, 3, 9, 8)
    assert torch.equal(convolve_stem(conv, x), conv(x))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 2), (3, 3), (4, 4)])
def test_taps_on_padding_are_left_out(stride: int, shape: tuple[int, int]) -> None:
    conv = nn.Conv2d(6, 5, 3, stride=stride, padding=1, bias=False).double()
    x = torch.randn(4, 6, *shape, dtype=torch.float64, requires_grad=True)
    plain, trimmed = conv(x), convolve_3x3(conv, x)
    assert plain.shape == trimmed.shape
    assert torch.allclose(plain, trimmed, atol=1e-12)
    for a, b in zip(gradients(plain, x, conv.weight), gradients(trimmed, x, conv.weight), strict=True):
        assert torch.allclose(a, b, atol=1e-12)
