"""Where the dictionary and the codes are kept: unit columns, and the two rules for codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

CodesRule = Literal["free", "flat"]


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
    """argmin_Y ‖Y − X‖_F over Y ≥ 0 (Algorithm 1, line 9): max(X, 0)."""
    return x.clamp_min(0.0)


def flat_codes(x: Tensor) -> Tensor:
    """The codes of the optimum, for any X: class j has 1/s on each of its own s = q/k atoms, and 0 on the others.

    ΔR of balanced classes is maximal where every class fills d/k directions of its own evenly.

    >>> flat_codes(torch.zeros(4, 2))
    tensor([[0.5000, 0.0000],
            [0.5000, 0.0000],
            [0.0000, 0.5000],
            [0.0000, 0.5000]])
    """
    q, k = x.shape
    if q % k:
        raise ValueError(
            f"flat codes need the same number of atoms for every class: {q} atoms, {k} classes; use codes='free', or a "
            f"multiple of {k} atoms"
        )
    own = torch.eye(k, dtype=x.dtype, device=x.device).repeat_interleave(q // k, dim=0)
    return own * (k / q)


def codes_projection(rule: CodesRule, trace: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The projection of a rule; flat codes sum to ``trace`` in every class, free codes have no trace of their own."""
    if rule == "free":
        return project_nonnegative
    return lambda codes: trace * flat_codes(codes)


def check_codes_rule(rule: str) -> None:
    """``rule`` is "free" or "flat"."""
    if rule not in get_args(CodesRule):
        raise ValueError(f"the rule for codes must be one of {', '.join(get_args(CodesRule))}; got {rule!r}")
