"""Same-class pairs: ‖Ĉ_j‖² of the class second moments Ĉ_j = Z_jᵀZ_j/n_j, and Ĉ_j z_i, without k·d² floats."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, SoftClasses, safe_reciprocal
from ._linalg import Guard


class Pairs(NamedTuple):
    """What the features alone contribute to the mismatch; the same at the old and at the new dictionary."""

    energy: Tensor
    """‖Ĉ_j‖_F² per class, (k,)."""
    penalty: Tensor
    """Σ_j γ_j ‖Ĉ_j‖_F²; debiased if asked for, a scalar."""
    pull: Tensor
    """(m/4) ∂penalty/∂z, (m, d): Ĉ_j z_i of each sample's class; debiased if asked for."""


def same_class_pairs(z: Tensor, classes: Classes, debias: bool, guard: Guard) -> Pairs:
    """Σ n_j·min(n_j, d)·d operations for hard labels, m²·(d + k) for soft ones.

    With ``debias`` the pairs of a sample with itself are left out and the remaining weights of each class's pairs,
    n_j² − Σ_i Π_ij² (n_j(n_j − 1) for hard labels), scaled back to one. A class of one sample has no pairs: it adds 0.
    """
    if isinstance(classes, HardClasses):
        return _hard(z, classes, debias, guard)
    return _soft(z, classes, debias)


def _hard(z: Tensor, classes: HardClasses, debias: bool, guard: Guard) -> Pairs:
    m, d = z.shape
    sizes = classes.sizes
    squared = z.new_zeros(classes.num_classes)
    pull = z.new_zeros(m + 1, d)
    # weights of a pair: 1/n² in the energy and 1/n in Ĉz, or 1/(n(n − 1)) and 1/(n − 1) without self-pairs
    per_pull = safe_reciprocal(sizes - 1.0 if debias else sizes)
    for group in classes.groups(guard):
        P = group.gather(z)
        if P.shape[1] <= d:
            product = P @ P.mT
            rows = product @ P
        else:
            product = P.mT @ P
            rows = P @ product
        squared.index_copy_(0, group.classes, product.square().sum((1, 2)))
        group.add_to(pull, rows.mul_(per_pull[group.classes, None, None]))
    pull = pull[:m]
    energy = squared * safe_reciprocal(sizes).square()
    if not debias:
        return Pairs(energy, (classes.proportions * energy).sum(), pull)
    row_energy = z.square().sum(1, keepdim=True)
    others = squared - classes.sum(row_energy.square()).squeeze(1)
    penalty = (others * per_pull).sum() / m
    return Pairs(energy, penalty, pull.addcmul_(row_energy * per_pull[classes.labels].unsqueeze(1), z, value=-1.0))


def _soft(z: Tensor, classes: SoftClasses, debias: bool) -> Pairs:
    m, d = z.shape
    membership = classes.membership
    self_pairs = membership.square().sum(0) if debias else torch.zeros_like(classes.sizes)
    available = classes.sizes.square() - self_pairs
    # nothing but rounding: such a class has no pairs left
    rounding = 16 * torch.finfo(z.dtype).eps * classes.sizes.square()
    available = torch.where(available > rounding, available, 0.0)
    weight = classes.proportions * safe_reciprocal(available)
    squared = z.new_zeros(classes.num_classes)
    penalty = z.new_zeros(())
    pull = torch.empty_like(z)
    for start in range(0, m, d):  # d rows at a time: a strip of the m×m Gram matrix no larger than z
        rows = slice(start, start + d)
        gram = z[rows] @ z.T
        pair_weight = (membership[rows] * weight) @ membership.T
        squared += (membership[rows] * (gram.square() @ membership)).sum(0)
        if debias:
            pair_weight.diagonal(start).zero_()
        pair_weight *= gram
        penalty += (pair_weight * gram).sum()
        pull[rows] = m * (pair_weight @ z)
    return Pairs(squared * safe_reciprocal(classes.sizes).square(), penalty, pull)
