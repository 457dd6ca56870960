"""The step sizes of Algorithm 1: ν_Γ/L_Γ for the dictionary and ν_A/L_j for the codes."""

from __future__ import annotations

import torch
from torch import Tensor

from ._classes import Classes
from ._mismatch import Scalar
from ._problem import Problem

# The codes' step is a gradient step on a quadratic with Hessian ∝ G₂: it diverges once ν·λ_max(G₂)/‖G₂‖_F reaches 2.
CODES_STEP_LIMIT = 1.9


def codes_rate(
    classes: Classes, frobenius: Tensor, largest_row: Tensor, weight: Scalar, nu_codes: Scalar, cap_codes_step: bool
) -> Tensor:
    """γ_j·ν_A/L_j with L_j = 2w γ_j ‖G₂‖_F, (k,), for gradients without the factor γ_j; 0 for a class without samples.

    ``largest_row`` bounds λ_max(G₂).
    """
    limit = CODES_STEP_LIMIT * frobenius / largest_row
    nu = limit.clamp(max=nu_codes) if cap_codes_step else nu_codes
    return torch.where(classes.proportions > 0, nu / (2.0 * weight * frobenius), 0.0)


def dictionary_rate(problem: Problem, largest: Tensor, nu: Scalar) -> Tensor:
    """ν_Γ/L_Γ with L_Γ = 4w Σ_j γ_j (‖Ĉ_j‖_F max Â_j + (max Â_j)²), the appendix's constant for any class balance.

    ``largest`` is max_l |Â_lj|, (k,). 0 where L_Γ = 0 (all codes zero).
    """
    per_class = (problem.pairs.norms + largest) * largest
    lipschitz = 4.0 * problem.weight * torch.dot(problem.classes.proportions, per_class)
    return torch.where(lipschitz > 0, nu / lipschitz, 0.0)
