"""R_c of soft classes with its gradients in the features and in the memberships, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import SoftClasses, safe_reciprocal
from ._linalg import Guard, cholesky_inverse, factor_identity_plus, logdet, wants_gradient

# The most floats of a tensor (classes, m, d) where a GPU takes several classes at once: 64 MiB in float32.
_FLOATS = 2**24


def soft_parts(
    z: Tensor, classes: SoftClasses, eps_sq: float, guard: Guard, *, by_gram: bool, wants_z: bool, first: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """R_c and its gradients in z and in memberships, one class at a time: a soft class has every sample.

    So its matrices are min(m, d) wide. With c = d/ε² and h_ij = z_iᵀS_j⁻¹z_i: ∂R_c/∂z_i = (c/m) Σ_j Π_ij S_j⁻¹z_i, and
    ∂R_c/∂Π_ij = 1/(2m) [log det S_j + c (h_ij − Σ_l Π_lj h_lj / n_j)].

    The gradient in z is that of the rows from ``first`` on; more than 0 only where memberships want no gradient.
    """
    m, d = classes.count, z.shape[1]
    c = d / eps_sq
    wants_pi = wants_gradient(classes.membership)
    one_class = _soft_class_by_gram if by_gram else _soft_class
    with torch.no_grad():
        members = classes.membership.T.contiguous()  # (k, m): what is done for all classes at once is done here
        inverse_sizes = safe_reciprocal(classes.sizes).unsqueeze(1)
        roots = (c * inverse_sizes * members).sqrt_()
        grad_z = torch.zeros_like(z[first:]) if wants_z else z[:0]
        asked = Asked(grad_z, first, wants_pi)
        if z.is_cuda and not by_gram:  # a loop of small kernels would leave a GPU idle
            size = max(1, _FLOATS // z.numel())
            parts = zip(torch.split(members, size), torch.split(roots, size), strict=True)
            found = [_soft_classes(z, pi, root, guard, asked) for pi, root in parts]
            nats, shares = (torch.cat(list(values)) for values in zip(*found, strict=True))
        else:
            each = zip(members, roots, strict=True)
            found = [one_class(z, pi, root, guard, asked) for pi, root in each]
            nats, shares = (torch.stack(list(values)) for values in zip(*found, strict=True))
        value = 0.5 * (classes.proportions @ nats)
        if not wants_pi:
            return value, grad_z.mul_(c / m), torch.zeros_like(classes.membership)
        spread = shares - (members * shares).sum(1, keepdim=True) * inverse_sizes
        grad_pi = (nats.unsqueeze(1) + c * spread) * (classes.sizes > 0).unsqueeze(1) / (2 * m)
    return value, grad_z.mul_(c / m), grad_pi.T


class Asked(NamedTuple):
    """What is wanted besides log det S_j."""

    total: Tensor
    """Where Σ_j Π_ij S_j⁻¹z_i of the rows from ``first`` on is summed; empty if it is not wanted."""
    first: int
    shares: bool
    """h_ij of all rows."""

    @property
    def anything(self) -> bool:
        """Whether S_j⁻¹ is needed."""
        return len(self.total) > 0 or self.shares


class SoftClass(NamedTuple):
    """What R_c and its gradients need of one class."""

    nats: Tensor
    """log det S_j."""
    shares: Tensor
    """h_ij of all i, (m,), if they are wanted."""


def _soft_classes(z: Tensor, pi: Tensor, root: Tensor, guard: Guard, asked: Asked) -> SoftClass:
    """:func:`_soft_class` of several at once, (c, m) each."""
    factor = factor_identity_plus((z * root.unsqueeze(2)).mT, guard)
    nats = logdet(factor).to(z.dtype)
    if not asked.anything:
        return SoftClass(nats, nats)
    rows = z[asked.first :]
    solved = (rows.to(factor.dtype) @ cholesky_inverse(factor)).to(z.dtype)
    if len(asked.total):
        asked.total.add_((solved * pi[:, asked.first :].unsqueeze(2)).sum(0))
    return SoftClass(nats, solved.mul_(rows).sum(2) if asked.shares else nats)


def _soft_class(z: Tensor, pi: Tensor, root: Tensor, guard: Guard, asked: Asked) -> SoftClass:
    """One class with S_j = I + PᵀP, P_i = √(cΠ_ij/n_j) z_i, d×d: one inverse and one product.

    Π_ij S_j⁻¹z_i is added to the total, unless that is empty.
    """
    # the same P on both sides: S_j stays positive definite whatever the rounding of P
    factor = factor_identity_plus((z * root.unsqueeze(1)).T, guard)
    nats = logdet(factor).to(z.dtype)
    if not asked.anything:
        return SoftClass(nats, nats)
    rows = z[asked.first :]
    solved = (rows.to(factor.dtype) @ cholesky_inverse(factor)).to(z.dtype)  # every S_j⁻¹z_i, members or not
    if len(asked.total):
        asked.total.addcmul_(solved, pi[asked.first :].unsqueeze(1))
    return SoftClass(nats, solved.mul_(rows).sum(1) if asked.shares else nats)


def _soft_class_by_gram(z: Tensor, pi: Tensor, root: Tensor, guard: Guard, asked: Asked) -> SoftClass:
    """The same from the m×m matrix I + PPᵀ: with W = (I + PPᵀ)⁻¹P, √(cΠ_ij/n_j) S_j⁻¹z_i = W_i."""
    P = z * root.unsqueeze(1)
    factor = factor_identity_plus(P, guard)
    nats = logdet(factor).to(z.dtype)
    if not asked.anything:
        return SoftClass(nats, nats)
    W = (cholesky_inverse(factor) @ P.to(factor.dtype)).to(z.dtype)
    if len(asked.total):
        asked.total.addcmul_(W[asked.first :], (pi * safe_reciprocal(root))[asked.first :].unsqueeze(1))
    if not asked.shares:
        return SoftClass(nats, nats)
    # W_i/√(cΠ_ij/n_j) is S⁻¹z_i without cancellation; only for a tiny Π_ij Woodbury's formula is needed
    member = root > 1e-3 * root.amax()
    woodbury = ((z - (z @ P.T) @ W) * z).sum(1)
    return SoftClass(nats, torch.where(member, (W * z).sum(1) / torch.where(member, root, 1.0), woodbury))
