"""R^v and R^v_c of Eq. 7, the rates of the features that Γ and Â describe, with their gradients in closed form.

With the stored codes Â = A/n_j and c = d/ε²: α Σ_j A_j = c s with s = Σ_j γ_j Â_j, and α_j A_j = c Â_j, so
R^v = ½ log det(I + c Γ Diag(s) Γᵀ) and R^v_c = Σ_j γ_j/2 Σ_l log(1 + c Â_lj). Neither depends on the features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._linalg import Guard, factor_identity_plus, logdet


class DictionaryRate(NamedTuple):
    """R^v, and the two quantities from which its gradients follow."""

    value: Tensor
    leverage: Tensor
    """γ_lᵀ S⁻¹ γ_l, (q,): ∂R^v/∂Â_lj = c/2 · γ_j · leverage_l."""
    dictionary_gradient: Tensor
    """∂R^v/∂Γ = c S⁻¹ Γ Diag(s), (d, q)."""


def _factor(dictionary: Tensor, mixture: Tensor, c: float, guard: Guard) -> Tensor:
    return factor_identity_plus(dictionary * mixture, guard, c, dictionary)


def expansion_value(dictionary: Tensor, codes: Tensor, proportions: Tensor, c: float, guard: Guard) -> Tensor:
    """R^v without gradients."""
    return 0.5 * logdet(_factor(dictionary, codes @ proportions, c, guard)).to(dictionary.dtype)


def expansion_with_gradients(
    dictionary: Tensor, codes: Tensor, proportions: Tensor, c: float, guard: Guard
) -> DictionaryRate:
    """R^v and its gradients: one factorisation and two triangular solves with q right-hand sides."""
    mixture = codes @ proportions
    factor = _factor(dictionary, mixture, c, guard)
    half = torch.linalg.solve_triangular(factor, dictionary.to(factor.dtype), upper=False)
    whole = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    rates = DictionaryRate(0.5 * logdet(factor), half.square().sum(0), whole.mul_(c * mixture))
    return DictionaryRate(*(part.to(dictionary.dtype) for part in rates))


def compression_value(codes: Tensor, proportions: Tensor, c: float) -> Tensor:
    """R^v_c."""
    return 0.5 * (torch.log1p(c * codes).sum(0) * proportions).sum()
