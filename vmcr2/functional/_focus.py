"""A pull that weakens as a sample arrives: the logarithm of its share in its class's atoms in place of the share.

M pulls a sample by its energy e = zᵀΓDiag(Â_j)Γᵀz in its own class. With L = max_l Â_lj, e/L is the sample's share in
the class's atoms, at most 1 if they are orthonormal. The pull along the sphere is proportional to √(s(1 − s)): a sample
that lies in another class's subspace, s ≈ 0, is hardly pulled. Focus φ > 0 puts L·ψ(e/L) in place of e, with
ψ(s) = log(1 + φs)/log(1 + φ): ψ(0) = 0, ψ(1) = 1, and ψ' falls by 1 + φ in between. A sample of several classes has
their codes mixed by its memberships as Â_j.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pull_weights(energy: Tensor, largest: Tensor, focus: float) -> Tensor:
    """ψ'(e/L) of every sample: what focus multiplies its pull by. Energies and L may have any common factor."""
    return focus / math.log1p(focus) / (1.0 + focus * _shares(energy, largest))


def focused_energy(energy: Tensor, largest: Tensor, focus: float) -> Tensor:
    """L·ψ(e/L) of every sample."""
    return largest * torch.log1p(focus * _shares(energy, largest)) / math.log1p(focus)


def _shares(energy: Tensor, largest: Tensor) -> Tensor:
    # a class whose codes are all zero pulls nobody: 0/0 is a share of 0
    return torch.where(largest == 0, 0.0, energy / torch.where(largest == 0, 1.0, largest))
