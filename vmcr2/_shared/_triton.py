"""Whether Triton kernels can be used. Triton comes with torch's CUDA builds for Linux, and is never required."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor


@functools.cache
def has_triton() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("triton") is not None


def fits_triton(x: Tensor) -> bool:
    """Whether a tensor is on a CUDA device, outside torch.compile (which fuses itself), and fits 32-bit indices."""
    return x.is_cuda and not torch.compiler.is_compiling() and x.numel() < 2**31 and has_triton()
