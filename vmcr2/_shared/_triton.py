"""Whether kernels in Triton can be used. It comes with torch's CUDA builds for Linux, and is nowhere required."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor


@functools.cache
def has_triton() -> bool:
    """Whether the package is there."""
    return importlib.util.find_spec("triton") is not None


def fits_triton(x: Tensor) -> bool:
    """A tensor on a CUDA device, outside of torch.compile (which fuses by itself), small enough for 32-bit indices."""
    return x.is_cuda and not torch.compiler.is_compiling() and x.numel() < 2**31 and has_triton()
