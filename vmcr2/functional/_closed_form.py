"""Gradients that are known in closed form, for autograd and for ``torch.func``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NO_SECOND = "closed-form gradients have no second derivative: use rate_reduction(…, backend='loop')"


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        # gradients are recorded only for create_graph=True, which would take the closed form for a constant
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(NO_SECOND)
        (gradient,) = ctx.saved_tensors
        return upstream, upstream * gradient, None


class _Transformed(torch.autograd.Function):
    """The same under ``torch.func``, which records every gradient: so it is an error only where a second one is taken.

    A class of its own, because ``setup_context`` costs a little in every step.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        _, tensor, gradient = inputs
        ctx.save_for_backward(tensor, gradient)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        tensor, gradient = ctx.saved_tensors
        return upstream, _FirstOnly.apply(upstream, tensor, gradient), None  # type: ignore[no-untyped-call]


class _FirstOnly(torch.autograd.Function):
    """upstream · gradient. It depends on ``tensor`` in a way that nothing here knows: its derivative is an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(upstream: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
        return upstream * gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> None:
        raise RuntimeError(NO_SECOND)


def known_gradient(tensor: Tensor) -> type[torch.autograd.Function]:
    """The function that gives ``tensor`` a gradient: of (value, tensor, gradient)."""
    return _Transformed if is_transformed(tensor) else _KnownGradient


def is_transformed(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` (grad, vmap, …) gave this tensor to the function."""
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def refuse_transforms(tensor: Tensor) -> None:
    """An error before a module writes to its buffers, which ``torch.func`` cannot do."""
    if is_transformed(tensor):
        raise RuntimeError(
            "in train mode this loss changes its own buffers, which torch.func cannot follow: call loss.eval() first, "
            "or use loss(z, labels).backward()"
        )


def refuse_vmap(tensor: Tensor) -> None:
    """An error where a value must be looked at, which ``torch.vmap`` cannot do."""
    inner = tensor
    while is_transformed(inner):
        if torch._C._functorch.is_batchedtensor(inner):
            raise RuntimeError(
                "torch.vmap cannot be used here, because values are looked at: call the function in a loop, or use "
                "coding_rate(z, backend='loop', validate=False)"
            )
        inner = torch._C._functorch.get_unwrapped(inner)
