"""How every featurizer ends: the reshaping layers of Architecture 2, then rows of unit length."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from .._shared import fits_triton
from ..functional import full_precision, normalize_rows, working_dtype
from ._fused_norm import fusable, norm_relu


class ReshapingHead(nn.Sequential):
    """Linear, BatchNorm, ReLU, Linear. In training on a GPU the two in the middle are one kernel.

    Somebody may have changed the layers, or taken a slice of them: they are then called one by one.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, width) -> (n, dim)."""
        layers = list(self)
        while layers:
            layer = layers.pop(0)
            rectified = bool(layers) and type(layers[0]) is nn.ReLU
            if rectified and isinstance(layer, nn.BatchNorm1d) and fusable(layer, x):
                x = norm_relu(layer, x)
                layers.pop(0)
            else:
                x = layer(x)
        return x


def reshaping_head(dim: int, width: int = 512) -> ReshapingHead:
    """Architecture 2 of the appendix without its Normalize: 512 pooled channels, or another width, to d features.

    The layer between stays at 512: a backbone of few outputs then has room to spread, and one of many stays small.
    """
    return ReshapingHead(
        nn.Linear(width, 512, bias=False),  # the BatchNorm after it has a bias
        nn.BatchNorm1d(512),
        nn.ReLU(inplace=True),
        nn.Linear(512, dim),
    )


@full_precision
def unit_rows(z: Tensor) -> Tensor:
    """Rows of unit length, in float32 or z's higher precision: bfloat16 rows would be wrong by up to 1/256."""
    if fits_triton(z) and z.ndim == 2 and working_dtype(z) == torch.float32 and torch.is_grad_enabled():
        from ._unit_kernel import UnitRows

        return cast(Tensor, UnitRows.apply(z))  # type: ignore[no-untyped-call]
    return normalize_rows(z.to(working_dtype(z)))
