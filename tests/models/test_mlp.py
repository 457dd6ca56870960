"""The perceptron for vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vmcr2.models import MLP


@pytest.mark.parametrize(
    ("net", "total"),
    [
        # 64·256 + 256, 256·256 + 256, 256·128 + 128
        (MLP(64, 128), 16_640 + 65_792 + 32_896),
        (MLP(784, 500), 784 * 256 + 256 + 65_792 + 256 * 500 + 500),
        # with batch norm a width w has 2w for the norm instead of w biases
        (MLP(64, 128, batch_norm=True), 64 * 256 + 512 + 256 * 256 + 512 + 32_896),
        (MLP(5, 3, (4,)), 5 * 4 + 4 + 4 * 3 + 3),
        (MLP(5, 3, ()), 5 * 3 + 3),
    ],
)
def test_parameter_count(net: MLP, total: int) -> None:
    assert sum(parameter.numel() for parameter in net.parameters()) == total


def test_values_from_the_weights() -> None:
    net = MLP(12, 5, (7, 6))
    x = torch.randn(4, 3, 4)
    w1, b1, w2, b2, w3, b3 = net.parameters()
    hidden = ((x.reshape(4, 12) @ w1.T + b1).relu() @ w2.T + b2).relu()
    z = hidden @ w3.T + b3
    assert torch.allclose(net(x), z / z.norm(dim=1, keepdim=True), atol=1e-6)


def test_batch_norm_stands_between_linear_and_relu() -> None:
    kinds = [type(layer) for layer in MLP(12, 5, (7, 6), batch_norm=True).layers]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2 + [nn.Linear]


@pytest.mark.parametrize("shape", [(12,), (3, 11), (3, 4, 4)])
def test_another_size_is_refused_with_what_is_needed(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="needs 12 numbers per sample"):
        MLP(12, 5)(torch.rand(shape))


def test_an_empty_batch_stays_empty() -> None:
    assert MLP(12, 5)(torch.empty(0, 3, 4)).shape == (0, 5)


def test_bad_widths_are_named() -> None:
    with pytest.raises(ValueError, match="every width in hidden must be at least 1 and whole, got 0"):
        MLP(12, 5, (4, 0))
    with pytest.raises(ValueError, match="in_features must be at least 1"):
        MLP(0, 5)
