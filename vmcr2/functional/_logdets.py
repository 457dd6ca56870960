"""R and R_c with their gradients in closed form, each log-det on the smaller side of its matrix.

log det(I + a Z_jᵀZ_j) = log det(I + a Z_jZ_jᵀ), so a class of n_j samples needs an n_j×n_j factor, not d×d, and the
smaller side is also the more accurate one in float32. Value and gradient are made group by group and only the (m, d)
gradient is kept, which bounds memory whatever the class balance.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, SoftClasses, safe_reciprocal
from ._linalg import (
    Guard,
    attach_gradient,
    cholesky_inverse,
    cholesky_solve,
    factor_identity_plus,
    logdet,
    wants_gradient,
)

Backend = Literal["auto", "loop", "covariance", "gram"]


def expansion(z: Tensor, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    """R(Z) of checked features."""
    m, d = z.shape
    alpha = d / (m * eps_sq)
    if backend == "loop":
        return 0.5 * torch.logdet(_identity(d, z) + alpha * z.T @ z)
    wanted = wants_gradient(z)
    use_gram = _smaller_side_is_gram(m, d, backend)
    with torch.no_grad():
        left = z if use_gram else z.T
        factor = factor_identity_plus(left, guard, alpha)
        value = 0.5 * logdet(factor)
        if not wanted:
            return value
        inverse = cholesky_inverse(factor).mul_(alpha)
        gradient = inverse @ z if use_gram else z @ inverse
    return attach_gradient(value, z, gradient)


def compression(z: Tensor, classes: Classes, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    """R_c(Z, Π) of checked features and classes."""
    if backend == "loop":
        return _class_loop(z, classes, eps_sq)
    if isinstance(classes, SoftClasses):
        return _soft(z, classes, eps_sq, backend, guard)
    return _hard(z, classes, eps_sq, backend, guard)


def _hard(z: Tensor, classes: HardClasses, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    m, d = z.shape
    wanted = wants_gradient(z)
    with torch.no_grad():
        root_alpha = (d / eps_sq * safe_reciprocal(classes.sizes)).sqrt()
        # ∂R_c/∂Z_j = γ_j α_j S_j⁻¹ Z_j, and with P = √α_j Z_j that is (γ_j √α_j) S_j⁻¹ P
        outer = classes.proportions * root_alpha
        value = z.new_zeros(())
        gradient = z.new_zeros(m + 1, d) if wanted else None
        for group in classes.groups(guard):
            P = group.gather(z, root_alpha)
            use_gram = _smaller_side_is_gram(P.shape[1], d, backend)
            left = P if use_gram else P.mT
            factor = factor_identity_plus(left, guard)
            value += 0.5 * (classes.proportions[group.classes] * logdet(factor)).sum()
            if gradient is not None:
                inverse = cholesky_inverse(factor).mul_(outer[group.classes, None, None])
                group.add_to(gradient, inverse @ P if use_gram else P @ inverse)
    return value if gradient is None else attach_gradient(value, z, gradient[:m])


def _soft(z: Tensor, classes: SoftClasses, eps_sq: float, backend: Backend, guard: Guard) -> Tensor:
    """One class at a time: a soft class has every sample, so its matrices are min(m, d) wide.

    With X = Z S_j⁻¹: ∂R_c/∂z_i = d/(mε²) Σ_j Π_ij X_i, and
    ∂R_c/∂Π_ij = 1/(2m) [log det S_j + (d/ε²)(x_iᵀz_i − Σ_l Π_lj x_lᵀz_l / n_j)].
    """
    m, d = z.shape
    membership = classes.membership
    wants_z, wants_pi = wants_gradient(z), wants_gradient(membership)
    use_gram = _smaller_side_is_gram(m, d, backend)
    c = d / eps_sq
    with torch.no_grad():
        value = z.new_zeros(())
        grad_z = torch.zeros_like(z)
        grad_pi = torch.zeros_like(membership)
        inverse_size = safe_reciprocal(classes.sizes)
        for j in range(classes.num_classes):
            pi = membership[:, j]
            P = z * (c * inverse_size[j] * pi).sqrt().unsqueeze(1)
            left = P if use_gram else P.T
            factor = factor_identity_plus(left, guard)
            bits = logdet(factor)
            value += 0.5 * classes.proportions[j] * bits
            if not (wants_z or wants_pi):
                continue
            # by Woodbury on the gram side: Z S⁻¹ = Z − (ZPᵀ)(I + PPᵀ)⁻¹P
            X = z - (z @ P.T) @ cholesky_solve(factor, P) if use_gram else cholesky_solve(factor, z.T).T
            grad_z += c / m * pi.unsqueeze(1) * X
            share = (X * z).sum(1)
            present = classes.sizes[j] > 0
            grad_pi[:, j] = (bits + c * (share - (pi @ share) * inverse_size[j])) * present / (2 * m)
    value = attach_gradient(value, z, grad_z) if wants_z else value
    return attach_gradient(value, membership, grad_pi) if wants_pi else value


def _class_loop(z: Tensor, classes: Classes, eps_sq: float) -> Tensor:
    """The textbook: a d×d ``torch.logdet`` per present class, differentiated by autograd."""
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
    return total


def _smaller_side_is_gram(samples: int, dim: int, backend: Backend) -> bool:
    return backend == "gram" or (backend == "auto" and samples <= dim)


def _identity(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)
