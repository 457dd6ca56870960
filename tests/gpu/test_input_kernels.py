"""Crops by Triton are those of a CPU, and the stem's blocks those of torch, bit for bit; resized ones to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vmcr2.data import _augment, augment_crop, augment_resized_crop
from vmcr2.models import _convolutions

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("channels", "side", "size", "padding"), [(3, 32, 32, 8), (1, 28, 32, 8), (1, 8, 8, 1)])
@pytest.mark.parametrize("seed", [0, 7, 2**62 + 5])
@pytest.mark.parametrize("flip", [True, False])
def test_crops(
    channels: int, side: int, size: int, padding: int, seed: int, flip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.randint(0, 256, (300, channels, side, side), dtype=torch.uint8, device="cuda")
    index = torch.randperm(300, device="cuda")[:100]
    options = {"seed": seed, "size": size, "padding": padding, "flip": flip}
    for epoch in (0, 1, 1999):
        draw = torch.tensor(epoch, device="cuda")
        ours = augment_crop(images, index, draw, **options)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(_augment, "fits_triton", lambda x: False)
            torchs = augment_crop(images, index, draw, **options)  # type: ignore[arg-type]
        on_cpu = augment_crop(images.cpu(), index.cpu(), draw.cpu(), **options)  # type: ignore[arg-type]
        assert torch.equal(ours.cpu(), on_cpu)
        assert torch.allclose(ours, torchs, rtol=0, atol=1e-7)  # which multiplies by 1/255 instead of dividing


@pytest.mark.parametrize(("channels", "height", "width", "size"), [(3, 32, 32, 32), (3, 64, 64, 32), (1, 20, 44, 16)])
@pytest.mark.parametrize("seed", [0, 2**62 + 5])
@pytest.mark.parametrize("options", [{}, {"flip": False, "scale": (0.25, 1.0)}, {"scale": (0.95, 1.0)}])
def test_resized_crops(channels: int, height: int, width: int, size: int, seed: int, options: dict[str, Any]) -> None:
    images = torch.randint(0, 256, (3000, channels, height, width), dtype=torch.uint8, device="cuda")
    index = torch.randperm(3000, device="cuda")
    for epoch in (0, 1, 1999):
        draw = torch.tensor(epoch, device="cuda")
        ours = augment_resized_crop(images, index, draw, seed=seed, size=size, **options)
        on_cpu = augment_resized_crop(images.cpu(), index.cpu(), draw.cpu(), seed=seed, size=size, **options)
        # another box would change whole pictures; rounding of weights changes the last bits
        assert torch.allclose(ours.cpu(), on_cpu, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", [(5, 3, 32, 32), (2, 1, 8, 12)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks(shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.rand(shape, device="cuda").to(dtype)
    conv = nn.Conv2d(shape[1], 64, 7, stride=2, padding=3, bias=False).to("cuda", dtype).eval()  # cuDNN over blocks
    ours = _convolutions.convolve_stem(conv, x)
    monkeypatch.setattr(_convolutions, "fits_triton", lambda x: False)
    assert torch.equal(ours, _convolutions.convolve_stem(conv, x))
    assert torch.allclose(ours.float(), conv(x).float(), rtol=2e-2, atol=2e-2 if dtype == torch.bfloat16 else 1e-2)
