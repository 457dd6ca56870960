"""The variational objective as it would be written from Eq. 7: d×d matrices per class, autograd for everything."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_variational_step(
    z: Tensor, labels: Tensor, dictionary: Tensor, codes: Tensor, *, eps_sq: float, weight: float, nu: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1, lines 5–11: the loss at the new (Γ, Â), differentiable in z, and the new (Γ, Â)."""
    d, k = z.shape[1], codes.shape[1]
    members = [z[labels == j] for j in range(k)]
    moments = [part.T @ part / max(len(part), 1) for part in members]
    shares = torch.tensor([len(part) / len(z) for part in members])
    old = dictionary.clone().requires_grad_(), codes.clone().requires_grad_()
    objective = _objective([moment.detach() for moment in moments], shares, *old, d / eps_sq, weight)
    by_dictionary, by_codes = torch.autograd.grad(objective, old)
    with torch.no_grad():
        largest = codes.amax(0)
        norms = torch.stack([torch.linalg.matrix_norm(moment) for moment in moments])
        dictionary_bound = 4 * weight * (shares * (norms * largest + largest.square())).sum()
        codes_bound = 2 * weight * shares * torch.linalg.matrix_norm((dictionary.T @ dictionary).square())
        moved = dictionary + nu / dictionary_bound * by_dictionary
        new_dictionary = moved / torch.linalg.vector_norm(moved, dim=0)
        new_codes = torch.where(shares > 0, (codes + nu / codes_bound * by_codes).clamp_min(0), codes)
    loss = -_objective(moments, shares, new_dictionary, new_codes, d / eps_sq, weight)
    return loss, new_dictionary, new_codes


def _objective(
    moments: list[Tensor], shares: Tensor, dictionary: Tensor, codes: Tensor, c: float, weight: float
) -> Tensor:
    models = [(dictionary * codes[:, j]) @ dictionary.T for j in range(codes.shape[1])]
    mixture = (dictionary * (codes @ shares)) @ dictionary.T
    expansion = 0.5 * torch.logdet(torch.eye(len(dictionary)) + c * mixture)
    compression = 0.5 * (shares * torch.log1p(c * codes).sum(0)).sum()
    gaps = [(moment - model).square().sum() for moment, model in zip(moments, models, strict=True)]
    return expansion - compression - weight * (shares * torch.stack(gaps)).sum()
