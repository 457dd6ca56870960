"""Projections of the dictionary and the codes, column by column, each with the problem that it solves."""

from __future__ import annotations

import torch
from torch import Tensor


def project_unit_columns(x: Tensor) -> Tensor:
    """argmin_Y ‖Y − X‖_F over unit columns (Algorithm 1, line 10): X_l / ‖X_l‖.

    For a zero column every unit vector is a minimiser; the answer is then the first basis vector.

    >>> project_unit_columns(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
    tensor([[0.6000, 1.0000],
            [0.8000, 0.0000]])
    """
    largest = x.abs().amax(0, keepdim=True)
    # by the largest entry first, so that squares stay in range
    return unit_columns(x / largest.clamp_min(torch.finfo(x.dtype).tiny))


def unit_columns(x: Tensor) -> Tensor:
    """The same for columns whose squares are in range, in one reduction instead of two."""
    norm = torch.linalg.vector_norm(x, dim=0, keepdim=True)
    unit: Tensor = x / norm.clamp_min(torch.finfo(x.dtype).tiny)
    unit[0] += (norm[0] == 0).to(x.dtype)
    return unit


def project_nonnegative(x: Tensor) -> Tensor:
    """argmin_Y ‖Y − X‖_F over Y ≥ 0 (Algorithm 1, line 9): max(X, 0). A zero column stays zero.

    >>> project_nonnegative(torch.tensor([[-1.0], [2.0]]))
    tensor([[0.],
            [2.]])
    """
    return x.clamp_min(0.0)


def project_simplex(x: Tensor) -> Tensor:
    """argmin_Y ‖Y − X‖_F over columns y ≥ 0 with Σ y = 1: max(X_l − τ_l, 0) with τ_l set by the sum.

    A zero column goes to the centre of the simplex, which is its Euclidean projection.

    >>> project_simplex(torch.tensor([[0.5, 3.0], [0.0, 0.0]]))
    tensor([[0.7500, 1.0000],
            [0.2500, 0.0000]])
    """
    # The largest r entries stay positive for the largest r with r·x_(r) > Σ_{i≤r} x_(i) − 1 (Duchi et al., 2008).
    x = x - x.amax(0, keepdim=True)  # changes nothing but rounding: τ moves along
    ordered = x.sort(dim=0, descending=True).values
    excess = ordered.cumsum(0) - 1.0
    rank = torch.arange(1, len(x) + 1, device=x.device, dtype=x.dtype).unsqueeze(1)
    kept = (rank * ordered > excess).sum(0, keepdim=True).clamp_min(1)
    threshold = excess.gather(0, kept - 1) / kept
    return (x - threshold).clamp_min(0.0)


def rescale_trace(x: Tensor) -> Tensor:
    """max(X, 0) with every column divided by its sum, so that ΓDiag(Â_j)Γᵀ has the trace 1 of unit features.

    Not a Euclidean projection: it is argmin_y KL(y ‖ max(X_l, 0)) over the simplex, and keeps zeros zero.
    A column with nothing positive stays zero: it has no direction to scale.

    >>> rescale_trace(torch.tensor([[3.0, 0.0], [1.0, -1.0]]))
    tensor([[0.7500, 0.0000],
            [0.2500, 0.0000]])
    """
    positive = x.clamp_min(0.0)
    # the largest entry first: a sum of entries near the top of the range would overflow
    largest = positive.amax(0, keepdim=True)
    scaled = positive / torch.where(largest > 0, largest, 1.0)
    total = scaled.sum(0, keepdim=True)
    return scaled / torch.where(total > 0, total, 1.0)


def flat_codes(x: Tensor) -> Tensor:
    """The codes of the optimum, whatever X is: class j has 1/s on each of its own s = q/k atoms and 0 on others'.

    ΔR of balanced classes is maximal where every class fills d/k directions of its own evenly. Free codes end nearly
    even too, at a trace that the weight of the mismatch decides (docs/recipe.md). q must be a multiple of k.

    >>> flat_codes(torch.zeros(4, 2))
    tensor([[0.5000, 0.0000],
            [0.5000, 0.0000],
            [0.0000, 0.5000],
            [0.0000, 0.5000]])
    """
    q, k = x.shape
    if q % k:
        raise ValueError(f"flat codes need as many atoms for every class: {q} atoms are no multiple of {k} classes")
    own = torch.eye(k, dtype=x.dtype, device=x.device).repeat_interleave(q // k, dim=0)
    return own * (k / q)
