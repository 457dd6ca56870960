"""A bound on the gradient that a loss gives to the network's output: a step of SGD is then never violent.

The rates are sums over d directions, and normalising divides a gradient by the length of the output, which is small at
the start. So the first gradients can be a hundred times those of cross-entropy. A step along them throws all features
to one place, from which they may never return.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import check_positive

MAX_GRADIENT = 2.0
"""Cross-entropy's gradients in its logits have lengths that sum to at most √2 over a batch. Chosen on digits among 1,
2, 3, 4 and 6, one seed each: a larger bound is faster at a rate of 0.01, a smaller one safer at 0.1 with momentum."""


def check_max_gradient(value: float | None) -> float | None:
    """None, or a finite number above 0."""
    if value is None:
        return None
    check_positive(value, "max_gradient")
    return float(value)


def bounded(gradient: Tensor, outputs: Tensor, z: Tensor, normalize: bool, bound: float | None) -> Tensor:
    """``gradient`` in z, times the largest factor ≤ 1 at which the lengths of the rows' gradients sum to ``bound``.

    They are the gradients in the network's ``outputs`` y, (m, d). With ``normalize`` z_i = y_i/|y_i|, and the gradient
    in y_i is what is orthogonal to z_i of the gradient in z_i, divided by |y_i|.
    """
    if bound is None:
        return gradient
    if normalize:
        along = (gradient * z).sum(1, keepdim=True)
        tangent = torch.linalg.vector_norm(gradient - along * z, dim=1)
        length = torch.linalg.vector_norm(outputs.detach().to(z.dtype), dim=1)
        each = torch.where(length > 0, tangent / torch.where(length > 0, length, 1.0), 0.0)
    else:
        each = torch.linalg.vector_norm(gradient, dim=1)
    total = each.sum()
    return gradient * torch.where(total > bound, bound / total, 1.0)
