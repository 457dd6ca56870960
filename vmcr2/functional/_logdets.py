"""R and R_c with their gradients in closed form, each log-det on the smaller side of its matrix.

log det(I + a Z_jᵀZ_j) = log det(I + a Z_jZ_jᵀ), so a class of n_j samples needs an n_j×n_j factor, not d×d. The smaller
side is also the more accurate one in float32. Value and gradient are computed group by group, and only the (m, d)
gradient is kept, which bounds memory for any class balance.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ._classes import Classes, ClassGroup, HardClasses, SoftClasses, safe_reciprocal
from ._inverses import by_kernels, inverses_of_identity_plus, newton_inverse_identity_plus, rows_times
from ._linalg import (
    NEWTON_FROM,
    Guard,
    attach_gradient,
    cholesky_inverse,
    factor_identity_plus,
    inverse_identity_plus,
    logdet,
    report_residual,
    wants_gradient,
)
from ._soft_logdets import soft_parts

Backend = Literal["auto", "loop", "covariance", "gram"]


def expansion(z: Tensor, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    """R(Z) of checked features."""
    if backend == "loop":
        m, d = z.shape
        value = 0.5 * torch.logdet(_identity(d, z) + d / (m * eps_sq) * z.T @ z)
        _report_lost(value, guard)
        return value
    wanted = wants_gradient(z)
    value, gradient = expansion_with_gradient(z, eps_sq, guard, backend, with_gradient=wanted)
    return attach_gradient(value, z, gradient) if wanted else value


@torch.no_grad()
def expansion_with_gradient(
    z: Tensor, eps_sq: float, guard: Guard, backend: Backend = "auto", *, with_gradient: bool = True
) -> tuple[Tensor, Tensor]:
    """R and ∂R/∂Z, (m, d), which is empty without ``with_gradient``."""
    m, d = z.shape
    alpha = d / (m * eps_sq)
    use_gram = _smaller_side_is_gram(m, d, backend)
    factor = factor_identity_plus(z if use_gram else z.T, guard, alpha)
    value = 0.5 * logdet(factor).to(z.dtype)
    if not with_gradient:
        return value, z[:0]
    inverse = cholesky_inverse(factor).mul_(alpha)
    wide = z.to(inverse.dtype)
    return value, (inverse @ wide if use_gram else wide @ inverse).to(z.dtype)


def expansion_gradient(z: Tensor, eps_sq: float, guard: Guard) -> Tensor:
    """∂R/∂Z without R, (m, d), of checked rows no longer than 1: an inverse in place of a log-det."""
    m, d = z.shape
    alpha = d / (m * eps_sq)
    use_gram = _smaller_side_is_gram(m, d, "auto")
    if guard.static(z) and by_kernels(z) and not use_gram and d >= NEWTON_FROM:
        padded, residual = newton_inverse_identity_plus(z, alpha)
        gradient = rows_times(z.unsqueeze(0), padded.unsqueeze(0), alpha)[0]
        report_residual(residual, guard)
        return gradient
    inverse = inverse_identity_plus(z if use_gram else z.T, guard, alpha).mul_(alpha)
    wide = z.to(inverse.dtype)
    return (inverse @ wide if use_gram else wide @ inverse).to(z.dtype)


def compression(z: Tensor, classes: Classes, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    """R_c(Z, Π) of checked features and classes."""
    if backend == "loop":
        return _class_loop(z, classes, eps_sq, guard)
    if isinstance(classes, SoftClasses):
        return _soft(z, classes, eps_sq, backend, guard)
    return _hard(z, classes, eps_sq, backend, guard)


def compression_with_gradient(
    z: Tensor, classes: Classes, eps_sq: float, guard: Guard, *, first: int = 0
) -> tuple[Tensor, Tensor]:
    """R_c, differentiable in memberships but not in z, and the rows of ∂R_c/∂Z from ``first`` on, (m − first, d).

    ``first`` is more than 0 only where memberships want no gradient.
    """
    if isinstance(classes, HardClasses):
        with torch.no_grad():
            value, gradient = hard_compression(z, classes, eps_sq, "auto", guard, with_gradient=True)
        return value, gradient[first:]
    by_gram = _smaller_side_is_gram(len(z), z.shape[1], "auto")
    value, gradient, by_membership = soft_parts(z, classes, eps_sq, guard, by_gram=by_gram, wants_z=True, first=first)
    if wants_gradient(classes.membership):
        value = attach_gradient(value, classes.membership, by_membership)
    return value, gradient


def _hard(z: Tensor, classes: HardClasses, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    wanted = wants_gradient(z)
    with torch.no_grad():
        value, gradient = hard_compression(z, classes, eps_sq, backend, guard, with_gradient=wanted)
    return attach_gradient(value, z, gradient) if wanted else value


def hard_compression(
    z: Tensor, classes: HardClasses, eps_sq: float, backend: Backend, guard: Guard, *, with_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """R_c and ∂R_c/∂Z, (m, d), which is empty without ``with_gradient``."""
    d = z.shape[1]
    root_alpha = (d / eps_sq * safe_reciprocal(classes.sizes)).sqrt()
    # ∂R_c/∂Z_j = γ_j α_j S_j⁻¹ Z_j, and with P = √α_j Z_j that is (γ_j √α_j) S_j⁻¹ P
    outer = classes.proportions * root_alpha
    value = z.new_zeros(())

    def rows(group: ClassGroup) -> Tensor:
        P = group.gather(z, root_alpha)
        use_gram = _smaller_side_is_gram(P.shape[1], d, backend)
        factor = factor_identity_plus(P if use_gram else P.mT, guard)
        value.add_(0.5 * (classes.proportions[group.classes] * logdet(factor)).sum())
        if not with_gradient:
            return P[:0]
        inverse = cholesky_inverse(factor).mul_(outer[group.classes, None, None])
        wide = P.to(inverse.dtype)
        return (inverse @ wide if use_gram else wide @ inverse).to(z.dtype)

    parts = (rows(group) for group in classes.groups(guard))  # a generator: only one group is in memory at a time
    if with_gradient:
        return value, classes.collect(parts, d)
    for _ in parts:
        pass
    return value, z[:0]


def compression_gradient(
    z: Tensor,
    classes: HardClasses,
    eps_sq: float,
    guard: Guard,
    inverses: Tensor | None = None,
    scales: Tensor | None = None,
) -> Tensor:
    """(c/m) S_j⁻¹z_i of each sample's class, (m, d), which is ∂R_c/∂Z; c = d/ε².

    ``inverses`` X_j (k, D, D), D ≥ d, and ``scales`` c/n_j (k,) add other rows to the classes, as in
    :func:`carried_compression`: S_j = X_j⁻¹ + (c/n_j)Z_jᵀZ_j.
    """
    m, d = z.shape
    by_batch = inverses is None
    if by_batch and not (guard.static(z) and by_kernels(z) and classes.static_size() <= d):
        return hard_compression(z, classes, eps_sq, "auto", guard, with_gradient=True)[1]
    (group,) = classes.groups(guard)
    scales = d / eps_sq * safe_reciprocal(classes.sizes) if scales is None else scales
    P = group.gather(z)
    W = P if inverses is None else rows_times(P, inverses)  # S⁻¹Pᵀ = Wᵀ(I + scale·PWᵀ)⁻¹, of W = PX
    inner = inverses_of_identity_plus(W * scales[group.classes, None, None], P, guard)
    return classes.collect([inner @ W], d).mul_(d / eps_sq / m)


def carried_compression(
    z: Tensor, memory: Tensor, classes: Classes, eps_sq: float, guard: Guard
) -> tuple[Tensor, Tensor]:
    """R_c of the rows of ``memory`` followed by z, and its gradient in z, (m, d), times rows/m.

    ``classes`` are those of all the rows. With more rows each has less weight; the factor rows/m makes a step as strong
    as with the batch's own R_c: (c/m) S_j⁻¹ z_i, with S_j = I + cĈ_j of all the class's rows and c = d/ε². With
    memberships Π it is (c/m) Σ_j Π_ij S_j⁻¹ z_i; a row of ``memory`` whose memberships are 0 is empty.
    """
    rows = torch.cat([memory, z])
    value, gradient = compression_with_gradient(rows, classes, eps_sq, guard, first=len(memory))
    return value, gradient * (classes.sizes.sum() / len(z))


def _soft(z: Tensor, classes: SoftClasses, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    membership, wants_z = classes.membership, wants_gradient(z)
    by_gram = _smaller_side_is_gram(len(z), z.shape[1], backend)
    value, grad_z, grad_pi = soft_parts(z, classes, eps_sq, guard, by_gram=by_gram, wants_z=wants_z)
    value = attach_gradient(value, z, grad_z) if wants_z else value
    return attach_gradient(value, membership, grad_pi) if wants_gradient(membership) else value


def _class_loop(z: Tensor, classes: Classes, eps_sq: float, guard: Guard) -> Tensor:
    """The textbook formula: a d×d ``torch.logdet`` per present class, differentiated by autograd."""
    m, d = z.shape
    identity = _identity(d, z)
    total = z.new_zeros(())
    for j in range(classes.num_classes):
        if isinstance(classes, SoftClasses):
            weights = classes.membership[:, j]
            size, scatter = weights.sum(), z.T @ (weights.unsqueeze(1) * z)
        else:
            members = z[classes.labels == j]
            size, scatter = classes.sizes[j], members.T @ members
        if size > 0:
            total = total + size / (2 * m) * torch.logdet(identity + d / (size * eps_sq) * scatter)
    _report_lost(total, guard)
    return total


def _report_lost(value: Tensor, guard: Guard) -> None:
    """``torch.logdet`` is NaN if rounding makes a determinant negative; the other backends have no such case."""
    guard.report(
        ~torch.isfinite(value.detach()),
        lambda: "torch.logdet lost I + α·ZᵀZ in rounding: use another backend, a larger eps_sq, or float64",
    )


def _smaller_side_is_gram(samples: int, dim: int, backend: Backend) -> bool:
    return backend == "gram" or (backend == "auto" and samples <= dim)


def _identity(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)
