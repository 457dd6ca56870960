"""A weaker attraction for samples near their class: the logarithm of a sample's share in its class's atoms.

In D the features meet the dictionary in −2 Σ_j γ_j ⟨Ĉ_j, ΓDiag(Â_j)Γᵀ⟩ = −(2/m) Σ_i e_i with e_i = z_iᵀΓDiag(Â_j)Γᵀz_i
of the sample's own class j. With L_j = max_l Â_lj, e_i/L_j is the sample's share in its class's atoms, at most 1 for
orthonormal ones. A focus φ > 0 replaces e_i by L_j ψ(e_i/L_j), ψ(s) = log(1 + φs)/log(1 + φ): ψ(0) = 0, ψ(1) = 1, and
the slope ψ' falls by the factor 1 + φ in between. So samples far from their class weigh more, as in cross-entropy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._classes import Classes


def focused(energy: Tensor, classes: Classes, codes: Tensor, focus: float) -> tuple[Tensor, Tensor]:
    """(L ψ(e/L), ψ'(e/L)) of every sample, (m,) each; below 0 ψ is a straight line."""
    largest = classes.spread(codes.abs().amax(0).unsqueeze(1)).squeeze(1)
    largest = largest.clamp_min(torch.finfo(energy.dtype).tiny)
    share = energy / largest
    inside = 1.0 + focus * share.clamp_min(0.0)
    slope = focus / math.log1p(focus)
    value = inside.log() / math.log1p(focus) + slope * share.clamp_max(0.0)
    return largest * value, slope / inside
