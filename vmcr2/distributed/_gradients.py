"""Gradients of all processes, in one exchange."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
        self._buffers: dict[torch.dtype, _Buffer] = {}

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
        names = [id(parameter) for parameter in parameters]
        buffer = self._buffers.get(dtype)
        if buffer is None or buffer.names != names:  # a captured step knows its address: it is made once
            buffer = self._buffers[dtype] = _Buffer(names, *_laid_out(dtype, parameters))
        torch._foreach_copy_(buffer.places, [own.grad for own in parameters if own.grad is not None])
        dist.all_reduce(buffer.flat)
        for parameter, place in zip(parameters, buffer.places, strict=True):
            parameter.grad = place


class _Buffer(NamedTuple):
    """Room for the gradients of some parameters, one after the other."""

    names: list[int]
    flat: Tensor
    places: list[Tensor]


def _laid_out(dtype: torch.dtype, parameters: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A place for each parameter's gradient, with the parameter's order of dimensions: copies go in memory order."""
    flat = torch.zeros(sum(own.numel() for own in parameters), dtype=dtype, device=parameters[0].device)
    places, start = [], 0
    for own in parameters:
        strides = torch.empty_like(own, device="meta").stride()
        places.append(flat.as_strided(own.shape, strides, start))
        start += own.numel()
    return flat, places
