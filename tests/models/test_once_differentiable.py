"""Gradients that kernels compute are constants for autograd: a second derivative is refused, and never wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vmcr2.models import _fused_norm
from vmcr2.models._fused_norm import FusedNorm, Wanted
from vmcr2.models._norm_passes import Gradients


def test_a_fused_norm_has_no_second_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    norm = nn.BatchNorm1d(4)

    def forward(x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
        return x, 2.0 * x, torch.zeros(4, 4)

    def backward(upstream: Any, *others: Any, **flags: Any) -> Gradients:
        return Gradients(2.0 * upstream.first.detach(), None, torch.zeros(4), torch.zeros(4))  # as kernels: new memory

    monkeypatch.setattr(_fused_norm, "small_forward_pass", forward)
    monkeypatch.setattr(_fused_norm, "small_backward_pass", backward)
    x = torch.randn(5, 4, requires_grad=True)
    (y,) = FusedNorm.apply(x, None, None, norm.weight, norm.bias, norm, Wanted())  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    assert torch.allclose(gradient, 8.0 * x)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
