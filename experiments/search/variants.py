"""Changes to the code that were measured and not taken up: each is a patch for the length of one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vmcr2.losses import _variational_step as _pull


class _NoPairs:
    """Same-class pairs whose push within the class is left out."""

    def __init__(self, z: Tensor, pairs: Any) -> None:
        self.moment_products = torch.zeros_like(z)
        self._pairs = pairs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pairs, name)


@contextmanager
def attract() -> Iterator[None]:
    """The network feels −2⟨Ĉ_j, ΓDiag(Â_j)Γᵀ⟩ and R alone: ‖Ĉ_j‖² is left out of M's gradient in z."""
    before = _pull.same_class_pairs
    _pull.same_class_pairs = lambda z, *rest: _NoPairs(z, before(z, *rest))  # type: ignore[assignment]
    try:
        yield
    finally:
        _pull.same_class_pairs = before


@contextmanager
def steady(decay: float = 0.9) -> Iterator[None]:
    """R's gradient at the second moment of the last batches, not at the batch's own: (c/m)(I + c·mean)⁻¹ z_i."""
    before = _pull.expansion_gradient
    kept: dict[torch.device, Tensor] = {}  # made in the first steps of a run, before they are captured

    def carried(z: Tensor, eps_sq: float, guard: Any) -> Tensor:
        m, d = z.shape
        own = z.T @ z / m
        mean = kept.setdefault(z.device, own.clone()).lerp_(own, 1.0 - decay)
        matrix = torch.eye(d, device=z.device, dtype=z.dtype) + d / eps_sq * mean
        return d / (eps_sq * m) * torch.cholesky_solve(z.T, torch.linalg.cholesky_ex(matrix).L).T

    _pull.expansion_gradient = carried
    try:
        yield
    finally:
        _pull.expansion_gradient = before


@contextmanager
def plain() -> Iterator[None]:
    """The code as it is."""
    yield


VARIANTS = {
    "": plain,
    "attract": attract,
    "steady": steady,
}
