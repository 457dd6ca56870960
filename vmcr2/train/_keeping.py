"""For a while other values, then the old ones again: whatever ends the while, and in the tensors that are there.

A captured step knows its tensors by their addresses, so values are copied back and not tensors exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def keeping_values(tensors: list[Tensor]) -> Iterator[None]:
    """Their values are as they were, afterwards."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        if before:
            with torch.no_grad():
                torch._foreach_copy_(tensors, before)


@contextmanager
def keeping_momenta(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Layers of BatchNorm have their own momenta again, afterwards."""
    before = [norm.momentum for norm in norms]
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum


def running_norms(network: nn.Module) -> list[_BatchNorm]:
    """The layers of BatchNorm that keep running statistics."""
    return [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
