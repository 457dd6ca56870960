"""A multi-layer perceptron for vectors and small images."""

from __future__ import annotations

import math

from torch import Tensor, nn

from ..functional import check_count
from ._head import unit_rows


class MLP(nn.Module):
    """Linear-ReLU blocks and a last linear layer on the flattened input; (n, …) -> (n, dim).

    Args:
        in_features: numbers per sample, counted after flattening.
        dim: d, the number of features.
        hidden: widths of the blocks; ``()`` gives a linear map.
        batch_norm: put a BatchNorm1d between Linear and ReLU in every block; the Linear then has no bias.

    >>> import torch
    >>> z = MLP(64, 16)(torch.rand(5, 8, 8))
    >>> z.shape, torch.allclose(z.norm(dim=1), torch.ones(5))
    (torch.Size([5, 16]), True)
    """

    def __init__(
        self, in_features: int, dim: int, hidden: tuple[int, ...] = (256, 256), *, batch_norm: bool = False
    ) -> None:
        super().__init__()
        check_count(in_features, "in_features")
        check_count(dim, "dim")
        self.dim = dim
        self.in_features = in_features
        self.layers = nn.Sequential()
        width = in_features
        for size in hidden:
            check_count(size, "every width in hidden")
            self.layers.append(nn.Linear(width, size, bias=not batch_norm))
            if batch_norm:
                self.layers.append(nn.BatchNorm1d(size))
            self.layers.append(nn.ReLU())
            width = size
        self.layers.append(nn.Linear(width, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Unit rows (n, dim) of samples (n, …) with ``in_features`` numbers each."""
        if x.ndim < 2 or math.prod(x.shape[1:]) != self.in_features:
            raise ValueError(
                f"MLP needs {self.in_features} numbers per sample (in_features), one sample per row; "
                f"got shape {tuple(x.shape)}"
            )
        return unit_rows(self.layers(x.flatten(1)))
