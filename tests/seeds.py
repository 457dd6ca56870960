"""The suite's seed, and random numbers that follow it: no test depends on one lucky draw."""

from __future__ import annotations

import os

import torch
from torch import Tensor

SEED = int(os.environ.get("VMCR2_TEST_SEED", "0"))


def seeded(number: int = 0) -> torch.Generator:
    """A generator of its own for every number under every seed of the suite."""
    return torch.Generator().manual_seed(1_000_000 * SEED + number)


def randn(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in float64, the same for one ``seed`` within a run of the suite."""
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)
