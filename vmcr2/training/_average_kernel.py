"""The running mean of all weights in one Triton kernel: mean + share·(weight − mean), one pass over memory.

torch needs three passes over lists of tensors: 0.14 ms for ResNet-18 on an H200, where one takes 0.04.
"""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 4096


@triton.jit
def _lerp(weights, means, sizes, owners, starts, steps, least, BLOCK: tl.constexpr):
    owner = tl.load(owners + tl.program_id(0))
    place = tl.load(starts + tl.program_id(0)) + tl.arange(0, BLOCK)
    inside = place < tl.load(sizes + owner)
    weight = tl.load(weights + owner).to(tl.pointer_type(tl.float32))
    mean = tl.load(means + owner).to(tl.pointer_type(tl.float32))
    old = tl.load(mean + place, mask=inside)
    share = tl.maximum(9.0 / (tl.load(steps) + 10).to(tl.float32), least)
    tl.store(mean + place, old + (tl.load(weight + place, mask=inside) - old) * share, mask=inside)


class MovingMeans:
    """Pairs of float32 tensors that lie in memory in the same order, and stay where they are."""

    def __init__(self, weights, means, steps, decay):
        self.kept = weights, means  # the table has bare addresses
        self.steps, self.least = steps, 1.0 - decay
        counts = [-(-weight.numel() // _BLOCK) for weight in weights]

        def table(values):
            return torch.tensor(values, dtype=torch.int64, device=steps.device)

        self.tables = [
            table([weight.data_ptr() for weight in weights]),
            table([mean.data_ptr() for mean in means]),
            table([weight.numel() for weight in weights]),
            table([owner for owner, count in enumerate(counts) for _ in range(count)]),
            table([_BLOCK * i for count in counts for i in range(count)]),
        ]

    def update(self):
        """After a step was counted."""
        _lerp[(len(self.tables[3]),)](*self.tables, self.steps, self.least, _BLOCK)
