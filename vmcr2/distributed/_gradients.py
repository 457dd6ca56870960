"""Gradients of all processes, in one exchange."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from ._ranks import Ranks


class GradientSum:
    """``sum_gradients()`` gives every process the gradients of the whole batch.

    Args:
        ranks: the processes.
        parts: parameters whose gradients are of a process's own rows: they are summed.
        wholes: parameters whose gradients every process computes of all rows (a head after the gathering). The mean is
            taken, so that rounding cannot part the processes.
    """

    def __init__(self, ranks: Ranks, parts: Iterable[Tensor], wholes: Iterable[Tensor]) -> None:
        self._ranks = ranks
        self._parts, self._wholes = list(parts), list(wholes)
        self._flat: dict[torch.dtype, Tensor] = {}

    @torch.no_grad()
    def __call__(self) -> None:
        """Replace the gradients, in one buffer for each type: many small exchanges would wait for each other."""
        if not self._ranks.active:
            return
        if self._ranks.count > 1 and (shared := [own.grad for own in self._wholes if own.grad is not None]):
            torch._foreach_div_(shared, float(self._ranks.count))
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for parameter in (*self._parts, *self._wholes):
            if parameter.grad is not None:
                by_type.setdefault(parameter.grad.dtype, []).append(parameter)
        for dtype, parameters in by_type.items():
            self._exchange(dtype, parameters)

    def _exchange(self, dtype: torch.dtype, parameters: list[Tensor]) -> None:
        size = sum(parameter.numel() for parameter in parameters)
        flat = self._flat.get(dtype)
        if flat is None or len(flat) != size:
            flat = self._flat[dtype] = torch.zeros(size, dtype=dtype, device=parameters[0].device)
        places, start = [], 0
        for parameter in parameters:  # with the parameter's own strides: a copy in memory order
            places.append(flat.as_strided(parameter.shape, _strides(parameter), start))
            start += parameter.numel()
        torch._foreach_copy_(places, [parameter.grad for parameter in parameters if parameter.grad is not None])
        dist.all_reduce(flat)
        for parameter, place in zip(parameters, places, strict=True):
            parameter.grad = place


def _strides(parameter: Tensor) -> tuple[int, ...]:
    """Those of a tensor without gaps in the same order of dimensions."""
    return torch.empty_like(parameter, device="meta").stride()
