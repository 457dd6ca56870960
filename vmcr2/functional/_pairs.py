"""Same-class pairs: ‖Ĉ_j‖² of the class second moments Ĉ_j = Z_jᵀZ_j/n_j, and Ĉ_j z_i, without k·d² floats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, SoftClasses, safe_reciprocal
from ._linalg import Guard, products_as_asked


class Pairs(Protocol):
    """The part of the mismatch that depends on the features only: it is the same before and after a step on Γ and Â."""

    @property
    def norms(self) -> Tensor:
        """‖Ĉ_j‖_F per class, (k,)."""

    @property
    def energy(self) -> Tensor:
        """Its square."""

    @property
    def penalty(self) -> Tensor:
        """Σ_j γ_j ‖Ĉ_j‖_F², a scalar; without self-pairs where ``debias`` is set."""

    @property
    def moment_products(self) -> Tensor:
        """Ĉ_j z_i of each sample's class, (m, d), which is (m/4) ∂penalty/∂z; without self-pairs likewise."""


def same_class_pairs(z: Tensor, classes: Classes, debias: bool, guard: Guard) -> Pairs:
    """The pairs of a batch, in Σ n_j·min(n_j, d)·d operations for hard labels and m²·(d + k) for soft ones.

    ``debias`` leaves out the pairs of a sample with itself. The weights of the others, n_j² − Σ_i Π_ij² of each class
    (n_j(n_j − 1) for hard labels), are scaled to sum to one. A class of one sample has no pairs and adds 0.
    """
    if isinstance(classes, HardClasses):
        return HardPairs(z.detach(), classes, debias, guard)
    return _soft(z.detach(), classes, debias)


class HardPairs:
    """Pairs by integer labels: one Gram matrix per class, on its smaller side. The rest is computed when it is read.

    Weights of a pair: 1/n² in the energy and 1/n in Ĉz, or 1/(n(n − 1)) and 1/(n − 1) without self-pairs.
    """

    def __init__(self, z: Tensor, classes: HardClasses, debias: bool, guard: Guard) -> None:
        self.z, self.classes, self.debias = z, classes, debias
        self.groups = classes.groups(guard)
        self.members = [group.gather(z) for group in self.groups]
        with products_as_asked():
            self._products = [P @ P.mT if self._by_gram(P) else P.mT @ P for P in self.members]
        self._norms = z.new_zeros(classes.num_classes)
        for group, product in zip(self.groups, self._products, strict=True):
            self._norms.index_copy_(0, group.classes, torch.linalg.vector_norm(product, dim=(1, 2)))
        self._per_row = safe_reciprocal(classes.sizes - 1.0 if debias else classes.sizes)

    def _by_gram(self, members: Tensor) -> bool:
        return members.shape[1] <= self.z.shape[1]

    @property
    def norms(self) -> Tensor:
        return self._norms / self.classes.sizes.clamp_min(1.0)  # 0 of an absent class

    @property
    def energy(self) -> Tensor:
        return self.norms.square()

    @property
    def penalty(self) -> Tensor:
        if not self.debias:
            return (self.classes.proportions * self.energy).sum()
        row_energies = self.z.square().sum(1, keepdim=True).square()
        others = (self._norms.square() - self.classes.sum(row_energies).squeeze(1)) * self._per_row
        if self.classes.importance is not None:
            others = others * self.classes.importance
        return others.sum() / len(self.z)

    @property
    def moment_products(self) -> Tensor:
        return self._collected(self._rows())

    def moment_products_minus(self, models: Iterable[Tensor]) -> Tensor:
        """``moment_products`` minus rows that come group by group, (classes, size, d) each: collected only once."""
        return self._collected(rows.sub_(model) for rows, model in zip(self._rows(), models, strict=True))

    def _rows(self) -> Iterator[Tensor]:
        for group, P, product in zip(self.groups, self.members, self._products, strict=True):
            yield (product @ P if self._by_gram(P) else P @ product).mul_(self._per_row[group.classes, None, None])

    def _collected(self, rows: Iterable[Tensor]) -> Tensor:
        with products_as_asked():
            products = self.classes.collect(rows, self.z.shape[1])
        if self.debias:
            own = self.z.square().sum(1, keepdim=True) * self._per_row[self.classes.labels].unsqueeze(1)
            products.addcmul_(own, self.z, value=-1.0)
        if self.classes.importance is not None:
            products.mul_(self.classes.importance[self.classes.labels].unsqueeze(1))
        return products


class SoftPairs(NamedTuple):
    """Pairs by memberships."""

    energy: Tensor
    penalty: Tensor
    moment_products: Tensor

    @property
    def norms(self) -> Tensor:
        return self.energy.sqrt()


def _soft(z: Tensor, classes: SoftClasses, debias: bool) -> SoftPairs:
    m, d = z.shape
    membership = classes.membership
    self_pairs = membership.square().sum(0) if debias else torch.zeros_like(classes.sizes)
    available = classes.sizes.square() - self_pairs
    # only rounding is left: such a class has no pairs
    rounding = 16 * torch.finfo(z.dtype).eps * classes.sizes.square()
    available = torch.where(available > rounding, available, 0.0)
    weight = classes.proportions * safe_reciprocal(available)
    squared = z.new_zeros(classes.num_classes)
    penalty = z.new_zeros(())
    products = torch.empty_like(z)
    for start in range(0, m, d):  # d rows at a time: a strip of the m×m Gram matrix no larger than z
        rows = slice(start, start + d)
        gram = z[rows] @ z.T
        pair_weight = (membership[rows] * weight) @ membership.T
        squared += (membership[rows] * (gram.square() @ membership)).sum(0)
        if debias:
            pair_weight.diagonal(start).zero_()
        pair_weight *= gram
        penalty += (pair_weight * gram).sum()
        products[rows] = m * (pair_weight @ z)
    return SoftPairs(squared * safe_reciprocal(classes.sizes).square(), penalty, products)
