"""Numerics in one place: precision, checks that do or do not synchronise, Cholesky factors, known gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

_WORST_CONDITION = 1e-3 / torch.finfo(torch.float32).eps

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")


def tracing() -> bool:
    """Whether the call is recorded (compiled, or captured in a CUDA graph), so that no value can be looked at."""
    if torch.compiler.is_compiling():
        return True
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Guard:
    """What to do with a bad value: raise in eager mode, else OR it into the caller's device flag."""

    validate: bool = True
    fault: Tensor | None = None
    synchronises: bool = False
    """Whether the caller synchronises with the device anyway, so that there is nothing to save by fixed shapes."""

    @property
    def raises(self) -> bool:
        """Whether values are looked at, which synchronises with the device."""
        return self.validate and not tracing()

    def static(self, z: Tensor) -> bool:
        """Whether shapes must not depend on values: recorded, or asked not to synchronise with a GPU."""
        return tracing() or (not self.validate and z.is_cuda and not self.synchronises)

    def report(self, bad: Tensor, message: Callable[[], str]) -> None:
        """Raise ``ValueError(message())`` if any of ``bad`` is set, or remember it in the flag."""
        if self.raises:
            if bool(bad.any()):
                raise ValueError(message())
        elif self.fault is not None:
            self.fault.logical_or_(bad.any())


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """float32, or the highest precision among the arguments if that is more."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Switch autocast off inside ``function``: a Gram matrix in bfloat16 makes a log-det worthless."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        if device not in AUTOCAST_DEVICES:  # asking torch is not traceable in torch 2.11
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return wrapper


def factor_identity_plus(left: Tensor, guard: Guard, alpha: float = 1.0, right: Tensor | None = None) -> Tensor:
    """The Cholesky factor of I + α·LRᵀ (R = L unless given), of one L or of a batch; a failure never passes as NaN.

    ``cholesky_ex`` does not raise. Where values may be looked at, a float32 matrix so large beside its identity that
    fewer than three digits of that are left (a very small ε²) is made again in float64, from L on, and **stays**
    float64: its inverse would lose in float32 what was just saved.
    """
    right = left if right is None else right
    matrix = _identity_plus(left, right, alpha)
    # the smallest eigenvalue is at least 1, so the norm bounds the condition number
    looked_at = left.dtype == torch.float32 and not guard.static(left)
    if looked_at and not bool((torch.linalg.matrix_norm(matrix) < _WORST_CONDITION).all()):
        matrix = _identity_plus(left.double(), right.double(), alpha)
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    guard.report(
        info != 0,
        lambda: "I + α·ZᵀZ is not positive definite in floating point: use a larger eps_sq, unit rows in z, or float64",
    )
    return factor


def _identity_plus(left: Tensor, right: Tensor, alpha: float) -> Tensor:
    identity = torch.eye(left.shape[-2], dtype=left.dtype, device=left.device)
    if left.ndim == 2:
        return torch.addmm(identity, left, right.T, alpha=alpha)
    return torch.baddbmm(identity.unsqueeze(0), left, right.mT, alpha=alpha)


def logdet(factor: Tensor) -> Tensor:
    """log det of the matrix whose Cholesky factor is given (of each, for a batch)."""
    diagonal: Tensor = factor.diagonal(dim1=-2, dim2=-1)
    return 2.0 * diagonal.log().sum(-1)


def cholesky_solve(factor: Tensor, right: Tensor) -> Tensor:
    """S⁻¹B from the factor of S, in the factor's precision. Two triangular solves: capturable on CUDA, unlike potrs."""
    half: Tensor = torch.linalg.solve_triangular(factor, right.to(factor.dtype), upper=False)
    whole: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return whole


def cholesky_inverse(factor: Tensor) -> Tensor:
    """S⁻¹ from the factor of S."""
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return cholesky_solve(factor, identity.expand_as(factor))


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        # gradients are recorded only for create_graph=True; the closed form would then pass for a constant
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("closed-form gradients have no second derivative: use rate_reduction(…, backend='loop')")
        (gradient,) = ctx.saved_tensors
        return upstream, upstream * gradient, None


def attach_gradient(value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
    """``value`` with ∂value/∂tensor = ``gradient`` known in closed form: autograd keeps nothing else.

    First derivatives only: asked for a second one (``create_graph=True``) it raises, instead of being silently wrong.
    """
    return cast(Tensor, _KnownGradient.apply(value, tensor, gradient))  # type: ignore[no-untyped-call]


def wants_gradient(tensor: Tensor) -> bool:
    """Whether autograd will ask for a gradient of this tensor."""
    return torch.is_grad_enabled() and tensor.requires_grad


def normalize_rows(z: Tensor) -> Tensor:
    """Rows scaled to unit length: argmin ‖y − z_i‖ over unit y. A zero row stays zero, with a finite gradient.

    Dividing by the largest entry first keeps the squares in range for |z| up to 1e10 and far below 1e-20.
    """
    largest = z.detach().abs().amax(dim=1, keepdim=True)
    scaled = z / torch.where(largest > torch.finfo(z.dtype).tiny, largest, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1.0)
