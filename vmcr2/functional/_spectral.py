"""Variational forms of spectral functions: Theorem 1 and Proposition 1 of the paper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._inputs import check_dense, check_finite, check_positive, check_range
from ._linalg import full_precision, working_dtype


@full_precision
def variational_spectral(left: Tensor, right: Tensor | None = None, *, h: Callable[[Tensor], Tensor]) -> Tensor:
    """Σ_i h(‖U_i‖·‖V_i‖) ≥ Σ_i h(σ_i(UVᵀ)), with equality at the SVD (Theorem 1 of the paper).

    An upper bound of a spectral function of X = UVᵀ, without an SVD. Its minimum over U and V is the function itself.

    Args:
        left: U, (rows, n), entries up to 1e15 (float64: 1e150); its columns are paired with those of ``right``. Any
            n ≥ rank X works.
        right: V, (columns, n); by default V = U, the form for a positive semi-definite X = UUᵀ.
        h: concave and non-decreasing on [0, ∞) with h(0) = 0, applied elementwise to a tensor.

    Differentiable in both factors; at a zero column the product of the norms has the sub-gradient 0. If h itself has an
    infinite slope at 0 (√), keep columns away from zero. To minimise over U and V, prefer
    ``variational_spectral(torch.cat([U, V]) / 2**0.5, h=h)``. Its weights (‖U_i‖² + ‖V_i‖²)/2 have the same minimum,
    but no kink where one column of a pair is zero (examples/system_identification.py).

    >>> U = torch.tensor([[3.0, 0.0], [0.0, 2.0]])  # already U S^½ of its SVD: tight
    >>> round(variational_spectral(U, h=torch.log1p).item(), 4), round(torch.logdet(torch.eye(2) + U @ U.T).item(), 4)
    (3.912, 3.912)
    """
    _check_factors(left, "left")
    dtype = working_dtype(left)
    if right is None:
        weights = left.to(dtype).square().sum(0)
    else:
        _check_factors(right, "right")
        if right.shape[1] != left.shape[1]:
            raise ValueError(
                f"right has {right.shape[1]} columns and left {left.shape[1]}: both factors need the same number"
            )
        dtype = working_dtype(left, right)
        norms = [torch.linalg.vector_norm(factor.to(dtype), dim=0) for factor in (left, right)]
        weights = norms[0] * norms[1]
    value = h(weights).sum()
    check_finite(value, "the result")
    return value


def variational_logdet(factors: Tensor, scale: float = 1.0) -> Tensor:
    """Σ_i log(1 + c‖U_i‖²) ≥ log det(I + c UUᵀ), with equality at U = Ū S^½ of the SVD (Proposition 1 of the paper).

    Also equal whenever the columns of U are orthogonal: they are then Ū S^½ already.

    Args:
        factors: U, (d, n), any number of columns n ≥ rank; its gradient is 2c U_i / (1 + c‖U_i‖²).
        scale: c, 0 or between 1e-12 and 1e12.

    >>> U = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> bool(variational_logdet(U) > torch.logdet(torch.eye(2) + U @ U.T))
    True
    """
    if scale != 0:
        check_positive(scale, "scale")
    return variational_spectral(factors, h=lambda weights: torch.log1p(scale * weights))


def _check_factors(factors: Tensor, name: str) -> None:
    if not isinstance(factors, Tensor) or factors.is_nested or factors.ndim != 2 or not factors.is_floating_point():
        got = f"{factors.dtype} of shape {tuple(factors.shape)}" if isinstance(factors, Tensor) else type(factors)
        raise ValueError(f"{name} must be a floating-point matrix with one factor per column; got {got}")
    check_dense(factors, name)
    check_range(factors, name)
