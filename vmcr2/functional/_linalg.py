"""Numerics in one place: precision, checks, Cholesky factors, eigenpairs, gradients in closed form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from ._closed_form import known_gradient, refuse_vmap

P = ParamSpec("P")
T = TypeVar("T")

_WORST_CONDITION = 1e-3 / torch.finfo(torch.float32).eps

# Rows whose largest entry is not above this count as zero, here and in the kernel of unit rows.
SHORTEST = {torch.float32: 1e-33, torch.float64: 1e-303}

AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")

# The caller's torch.set_float32_matmul_precision, inside a full_precision function; None outside of one.
_asked: ContextVar[str | None] = ContextVar("asked", default=None)

# A single matrix of this size or larger is inverted by products, if values are not checked: 500×500 took 0.27 ms on an
# H200, and 0.36 ms by a Cholesky factor, a solve and a product. Small ones and batches are faster by Cholesky.
NEWTON_FROM = 256

# The fewest rows of a strip of a symmetric product on a CPU.
_STRIP = 32


def tracing() -> bool:
    """Whether the call is recorded (compiled, or captured in a CUDA graph), so that no value can be checked."""
    if torch.compiler.is_compiling():
        return True
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Guard:
    """What to do with a bad value: raise in eager mode, otherwise set the caller's device flag."""

    validate: bool = True
    fault: Tensor | None = None
    synchronises: bool = False
    """Whether the caller waits for the device anyway, so that fixed shapes save nothing."""

    @property
    def raises(self) -> bool:
        """Whether values are checked, which waits for the device."""
        return self.validate and not tracing()

    def static(self, z: Tensor) -> bool:
        """Whether shapes must not depend on values: while recording, and on a GPU without ``validate``."""
        return tracing() or (not self.validate and z.is_cuda and not self.synchronises)

    def report(self, bad: Tensor, message: Callable[[], str]) -> None:
        """Raise ``ValueError(message())`` if any of ``bad`` is true, or set the flag."""
        if self.raises:
            if bool(bad.any()):
                raise ValueError(message())
        elif self.fault is not None:
            self.fault.logical_or_(bad.any())


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """float32, or the highest precision of the arguments if that is higher."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Switch autocast and TF32 off inside ``function``: with fewer bits in a Gram matrix its log-det is wrong."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        if device not in AUTOCAST_DEVICES:  # asking torch is not traceable in torch 2.11
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            if torch.compiler.is_compiling() or _asked.get() is not None:
                return function(*args, **kwargs)
            asked = torch.get_float32_matmul_precision()
            token = _asked.set(asked)
            try:
                with _products(asked, "highest"):
                    return function(*args, **kwargs)
            finally:
                _asked.reset(token)

    return wrapper


def products_as_asked() -> AbstractContextManager[None]:
    """Inside a :func:`full_precision` function: matrix products in the precision that the caller set in torch.

    For products whose rounding is not amplified later by a log-det or an inverse. They use TF32 if the caller said
    ``torch.set_float32_matmul_precision("high")``, and float32 if not.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    return _products("highest", _asked.get() or "highest")


def products_in_tf32() -> AbstractContextManager[None]:
    """For operands that were split so that TF32 loses nothing that matters."""
    return _products(torch.get_float32_matmul_precision(), "high")


@contextmanager
def _products(now: str, wanted: str) -> Iterator[None]:
    if now == wanted:
        yield
        return
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(now)


def factor_identity_plus(left: Tensor, guard: Guard, alpha: float = 1.0, right: Tensor | None = None) -> Tensor:
    """The Cholesky factor of I + α·LRᵀ (R = L unless given), of one L or of a batch. A failure is always reported.

    With a very small ε², a float32 matrix can be so large that fewer than three digits of its identity are left. If
    values can be checked, it is then computed again in float64, from L on. The factor **stays** float64: an inverse in
    float32 would lose these digits again.
    """
    right = left if right is None else right
    build = _lower_identity_plus if _by_strips(left) else _identity_plus
    matrix = build(left, right, alpha)
    # the smallest eigenvalue is at least 1, so the norm bounds the condition number
    looked_at = left.dtype == torch.float32 and not guard.static(left)
    refuse_vmap(matrix)
    if looked_at and not bool((torch.linalg.matrix_norm(matrix) < _WORST_CONDITION).all()):
        matrix = build(left.double(), right.double(), alpha)
    return factor_of(matrix, guard)


def factor_of(matrix: Tensor, guard: Guard) -> Tensor:
    """The Cholesky factor of I + α·ZᵀZ. A failure is always reported."""
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


def _by_strips(left: Tensor) -> bool:
    """Whether half of the matrix is worth computing: one large matrix on a CPU; a GPU prefers one product."""
    return left.device.type == "cpu" and left.ndim == 2 and len(left) >= 2 * _STRIP and not tracing()


def _lower_identity_plus(left: Tensor, right: Tensor, alpha: float) -> Tensor:
    """The same, strip by strip, without the blocks above the diagonal: Cholesky does not read them.

    The norm is at least 1/√2 of that of the whole matrix.
    """
    n = len(left)
    matrix = torch.eye(n, dtype=left.dtype, device=left.device)
    strips = min(8, n // _STRIP)
    for i in range(strips):
        start, end = n * i // strips, n * (i + 1) // strips
        matrix[start:end, :end].addmm_(left[start:end], right[:end].T, alpha=alpha)
    return matrix


def logdet(factor: Tensor) -> Tensor:
    """log det of the matrix whose Cholesky factor is given (of each, for a batch)."""
    diagonal: Tensor = factor.diagonal(dim1=-2, dim2=-1)
    return 2.0 * diagonal.log().sum(-1)


def cholesky_inverse(factor: Tensor) -> Tensor:
    """S⁻¹ = L⁻ᵀL⁻¹ from the factor of S: one triangular solve and a product, which is faster than a second solve.

    On a CPU it is LAPACK's potri, which needs a third of that time at 500×500.
    """
    if factor.device.type == "cpu" and not tracing():
        try:
            return torch.cholesky_inverse(factor)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a failed factor with a zero on its diagonal
            return torch.full_like(factor, torch.nan)
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    half: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return half.mT @ half


def inverse_identity_plus(left: Tensor, guard: Guard, alpha: float) -> Tensor:
    """(I + α·LLᵀ)⁻¹ without the log-det, of L (n, p) whose p columns have at most unit length."""
    if not (guard.static(left) and left.ndim == 2 and len(left) >= NEWTON_FROM):
        return cholesky_inverse(factor_identity_plus(left, guard, alpha))
    inverse, residual = newton_inverse(_identity_plus(left, left, alpha), 1.0 + alpha * left.shape[1])
    report_residual(residual, guard)
    return inverse


def report_residual(residual: Tensor, guard: Guard) -> None:
    """Newton's iteration did not come near the inverse."""
    guard.report(~(residual < 0.1), lambda: "I + α·ZᵀZ could not be inverted: use unit rows in z, or a larger eps_sq")


def first_distance(largest: float) -> float:
    """How far from 1 the eigenvalues of first·S are at most. At 1 itself, rounded, Newton's rounds would never end."""
    return min((largest - 1.0) / (largest + 1.0), 1.0 - 1e-12)


def newton_inverse(matrix: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """S⁻¹ of a symmetric S with eigenvalues in [1, ``largest``], and how far diag(SX) was from 1 before the last round.

    X ← sX(2I − SX): only products, which are much faster on a GPU than the factorisation of one matrix. If the
    eigenvalues of SX lie within δ of 1, those of X(2I − SX)S lie in [1 − δ², 1], and s = 2/(2 − δ²) centres them
    again: δ ← δ²/(2 − δ²). The number of rounds follows from ``largest``: 9 for 1001.
    """
    identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    first = 2.0 / (1.0 + largest)  # X = first·I
    delta = first_distance(largest)
    scale = 2.0 / (2.0 - delta**2)
    inverse = 2.0 * scale * first * identity - scale * first**2 * matrix
    bracket = inverse / first
    while True:
        delta = delta**2 / (2.0 - delta**2)
        if delta < 10 * torch.finfo(matrix.dtype).eps:
            return inverse, (bracket.diagonal() / scale - 1.0).abs().amax()
        scale = 2.0 / (2.0 - delta**2)
        # in its middle rounds the iteration corrects itself: TF32, if the caller has it on, is as good there
        with products_as_asked() if 0.05 < delta < 0.9 else nullcontext():
            bracket = torch.addmm(identity, matrix, inverse, beta=2.0 * scale, alpha=-scale)
            inverse = inverse @ bracket


def symmetric_eigenpairs(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices, (…, n) and (…, n, n), all finite.

    On sparse data LAPACK's float32 solver sometimes fails: it returns NaN for a finite matrix, or says that it did not
    converge. Which matrices fail depends on the CPU. The same matrix is then solved in float64.
    """
    if matrix.dtype == torch.float32 and not tracing():  # while recording no value can be checked: float64 at once
        try:
            values, vectors = torch.linalg.eigh(matrix)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            pass
        else:
            if bool(torch.isfinite(values.sum() + vectors.sum())):
                return values, vectors
    values, vectors = torch.linalg.eigh(matrix.double())
    return values.to(matrix.dtype), vectors.to(matrix.dtype)


def attach_gradient(value: Tensor, tensor: Tensor, gradient: Tensor) -> Tensor:
    """``value`` with ∂value/∂tensor = ``gradient``, known in closed form: autograd keeps nothing else.

    First derivatives only: a second one (``create_graph=True``) raises an error.
    """
    return cast(Tensor, known_gradient(tensor).apply(value, tensor, gradient))  # type: ignore[no-untyped-call]


def wants_gradient(tensor: Tensor) -> bool:
    """Whether autograd needs a gradient of this tensor."""
    return torch.is_grad_enabled() and tensor.requires_grad


def normalize_rows(z: Tensor) -> Tensor:
    """Rows scaled to unit length: argmin ‖y − z_i‖ over unit y. A zero row stays zero, with a finite gradient.

    Dividing by the largest entry first keeps the squares in range for |z| up to 1e15 (float64: 1e150). A row whose
    largest entry is below 1e-33 (float64: 1e-303) counts as zero: its gradient, divided by its length, would overflow.
    """
    dtype = working_dtype(z)
    wide = z.to(dtype)
    largest = wide.detach().abs().amax(dim=1, keepdim=True)
    scaled = wide / torch.where(largest > SHORTEST[dtype], largest, torch.inf)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return (scaled / torch.where(norm > 0, norm, 1.0)).to(z.dtype)
