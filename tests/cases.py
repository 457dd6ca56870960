"""The table of batches that every fast path is compared with the reference on: (m, d, k, balance, hard or soft)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import reference
import torch
from seeds import seeded
from torch import Tensor

DOUBLE = torch.float64


@dataclass(frozen=True)
class Case:
    m: int
    d: int
    k: int
    balance: str
    soft: bool

    def __str__(self) -> str:
        return f"m{self.m}-d{self.d}-k{self.k}-{self.balance}-{'soft' if self.soft else 'hard'}"

    def features(self, dtype: torch.dtype = DOUBLE, seed: int = 0) -> Tensor:
        generator = seeded(1000 + seed)
        z = torch.randn(self.m, self.d, generator=generator, dtype=DOUBLE)
        return torch.nn.functional.normalize(z, dim=1).to(dtype)

    def labels(self) -> Tensor:
        """What the package is given."""
        return self.membership() if self.soft else self._hard()

    def membership(self) -> Tensor:
        """What the reference is given."""
        hard = reference.one_hot(self._hard(), self.k)
        if not self.soft:
            return hard
        generator = seeded(3)
        noise = torch.rand(self.m, self.k, generator=generator, dtype=DOUBLE)
        return 0.6 * hard + 0.4 * noise / noise.sum(1, keepdim=True)

    def atoms(self, per_class: int = 2, dtype: torch.dtype = DOUBLE, seed: int = 0) -> tuple[Tensor, Tensor]:
        """A dictionary and codes that were not latched on anything."""
        generator = seeded(2000 + seed)
        q = per_class * self.k
        dictionary = torch.nn.functional.normalize(torch.randn(self.d, q, generator=generator, dtype=DOUBLE), dim=0)
        codes = torch.rand(q, self.k, generator=generator, dtype=DOUBLE)
        return dictionary.to(dtype), (codes * (codes > 0.5) / per_class).to(dtype)

    def _hard(self) -> Tensor:
        index = torch.arange(self.m)
        labels = {
            "even": index % self.k,
            "skewed": (index.double() / self.m).pow(2).mul(self.k).long(),
            "absent": index % max(1, self.k - 1),  # the last class has no sample
            "single": torch.where(index == 0, self.k - 1, index % max(1, self.k - 1)),  # the last class has one
        }[self.balance]
        return labels[torch.randperm(self.m, generator=seeded(5))]


SIZES = [(24, 6, 3), (12, 20, 4), (60, 8, 5), (9, 9, 2), (1, 5, 2), (7, 4, 7)]
HARD = [Case(*size, balance, False) for size, balance in product(SIZES, ("even", "skewed", "absent", "single"))]
# memberships are mixed with noise: no class is absent there, so that two balances are enough
CASES = HARD + [Case(*size, balance, True) for size, balance in product(SIZES, ("even", "skewed"))]
EVEN = [case for case in HARD if case.balance == "even" and case.m % case.k == 0]


def relative(value: Tensor, expected: Tensor) -> float:
    """Largest error relative to the largest expected entry (absolute where that is zero)."""
    scale = expected.abs().max().item()
    return (value.double() - expected.double()).abs().max().item() / (scale or 1.0)
