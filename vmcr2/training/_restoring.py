"""Contexts that restore old values on exit, whatever ends them.

A captured step knows its tensors by their addresses. So values are copied back, and tensors are not exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def restoring_values(tensors: list[Tensor]) -> Iterator[None]:
    """The tensors have their old values on exit."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        if before:
            with torch.no_grad():
                torch._foreach_copy_(tensors, before)


@contextmanager
def restoring_momenta(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Layers of BatchNorm have their old momenta on exit."""
    before = [norm.momentum for norm in norms]
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum


def running_norms(network: nn.Module) -> list[_BatchNorm]:
    """The layers of BatchNorm that keep running statistics."""
    return [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
