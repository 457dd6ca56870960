"""Rows of unit length and their gradient, a Triton kernel each: torch needs thirty small ones. ``_head`` uses it."""

# mypy: ignore-errors
# Triton's compiler reads annotations as part of its own language, so there are none for mypy

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from ..functional import SHORTEST


@triton.jit
def _unit(x, y, lengths, d, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    """y = x/‖x‖ of one row. Dividing by the largest entry first keeps squares in range.

    A zero row stays zero. Its length is infinite, so that its gradient is zero too.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * d + column, mask=column < d, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(value), 0)
    largest = tl.where(largest > ZERO, largest, float("inf"))
    value = value / largest
    norm = tl.sqrt(tl.sum(value * value, 0))
    norm = tl.where(norm > 0, norm, 1.0)
    tl.store(y + row * d + column, value / norm, mask=column < d)
    tl.store(lengths + row, norm * largest)


@triton.jit
def _unit_backward(gradient, y, lengths, by_x, d, BLOCK: tl.constexpr):
    """(g − y·yᵀg)/‖x‖ of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    g = tl.load(gradient + row * d + column, mask=column < d, other=0.0)
    v = tl.load(y + row * d + column, mask=column < d, other=0.0)
    value = (g - v * tl.sum(g * v, 0)) / tl.load(lengths + row)
    tl.store(by_x + row * d + column, value.to(by_x.dtype.element_ty), mask=column < d)


class UnitRows(torch.autograd.Function):
    """(m, d) of any floating type no wider than float32 -> float32."""

    @staticmethod
    def forward(ctx, x):
        """Rows of unit length."""
        x = x.contiguous()
        m, d = x.shape
        y = torch.empty(m, d, device=x.device)
        lengths = torch.empty(m, device=x.device)
        _unit[(m,)](x, y, lengths, d, SHORTEST[torch.float32], triton.next_power_of_2(d))
        ctx.save_for_backward(y, lengths)
        ctx.dtype = x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        """The gradient in the type of x."""
        y, lengths = ctx.saved_tensors
        m, d = y.shape
        by_x = torch.empty(m, d, dtype=ctx.dtype, device=y.device)
        _unit_backward[(m,)](gradient.contiguous(), y, lengths, by_x, d, triton.next_power_of_2(d))
        return by_x
