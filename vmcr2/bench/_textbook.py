"""The objectives written directly from their equations: d×d matrices per class, autograd for everything."""

from __future__ import annotations

import torch
from torch import Tensor


def batched_soft_loss(z: Tensor, membership: Tensor, eps_sq: float) -> Tensor:
    """−ΔR of Eq. 1 with memberships: one batched product and one batched Cholesky factor of k matrices d×d.

    Of three ways to write the product this was the fastest on a CPU, with its backward pass.
    """
    m, d = z.shape
    c = d / eps_sq
    sizes = membership.sum(0)
    identity = torch.eye(d, dtype=z.dtype, device=z.device)
    moments = (membership.T.unsqueeze(2) * z).mT @ z
    class_factors = torch.linalg.cholesky_ex(identity + (c / sizes)[:, None, None] * moments)[0]
    factor = torch.linalg.cholesky_ex(identity + c / m * z.T @ z)[0]
    class_rates = class_factors.diagonal(dim1=1, dim2=2).log().sum(1)
    loss: Tensor = (sizes / m * class_rates).sum() - factor.diagonal().log().sum()
    return loss


def dense_variational_step(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    eps_sq: float,
    weight: float,
    nu: float,
    class_size: int,
    at_a_time: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1, lines 5–11: the loss at the new (Γ, Â), differentiable in z, and the new (Γ, Â).

    ``class_size`` is that of the largest class. ``at_a_time`` classes are modelled in one product: all of them keep a
    GPU busy; one at a time stays in a CPU's cache and is nearly twice as fast there.
    """
    m, d = z.shape
    k = codes.shape[1]
    sizes = torch.zeros(k, dtype=torch.int64, device=z.device).scatter_add(0, labels, torch.ones_like(labels))
    shares = sizes / m
    moments = _moments(z, labels, sizes, class_size)
    old = dictionary.clone().requires_grad_(), codes.clone().requires_grad_()
    objective = _objective(moments.detach(), shares, *old, d / eps_sq, weight, at_a_time)
    by_dictionary, by_codes = torch.autograd.grad(objective, old)
    with torch.no_grad():
        largest = codes.amax(0)
        norms = torch.linalg.matrix_norm(moments)
        dictionary_bound = 4 * weight * (shares * (norms * largest + largest.square())).sum()
        codes_bound = 2 * weight * shares * torch.linalg.matrix_norm((dictionary.T @ dictionary).square())
        moved = dictionary + nu / dictionary_bound * by_dictionary
        new_dictionary = moved / torch.linalg.vector_norm(moved, dim=0)
        new_codes = torch.where(shares > 0, (codes + nu / codes_bound * by_codes).clamp_min(0), codes)
    loss = -_objective(moments, shares, new_dictionary, new_codes, d / eps_sq, weight, at_a_time)
    return loss, new_dictionary, new_codes


def _moments(z: Tensor, labels: Tensor, sizes: Tensor, class_size: int) -> Tensor:
    """Ĉ_j = Z_jᵀZ_j/n_j, (k, d, d)."""
    order = torch.argsort(labels, stable=True)
    sorted_labels = labels[order]
    slot = torch.arange(len(z), device=z.device) - (sizes.cumsum(0) - sizes)[sorted_labels]
    padded = z.new_zeros(len(sizes), class_size, z.shape[1]).index_put((sorted_labels, slot), z[order])
    return padded.mT @ padded / sizes.clamp_min(1)[:, None, None]


def _objective(
    moments: Tensor, shares: Tensor, dictionary: Tensor, codes: Tensor, c: float, weight: float, at_a_time: int
) -> Tensor:
    gaps = []
    for moment, code in zip(torch.split(moments, at_a_time), torch.split(codes.T, at_a_time), strict=True):
        model = (dictionary * code.unsqueeze(1)) @ dictionary.T
        gaps.append((moment - model).square().sum((1, 2)))
    mixture = (dictionary * (codes @ shares)) @ dictionary.T
    identity = torch.eye(len(dictionary), dtype=dictionary.dtype, device=dictionary.device)
    expansion = 0.5 * torch.logdet(identity + c * mixture)
    compression = 0.5 * (shares * torch.log1p(c * codes).sum(0)).sum()
    return expansion - compression - weight * (shares * torch.cat(gaps)).sum()
