"""Leading eigenpairs of every class's second moment Ĉ_j = Σ_i Π_ij z_i z_iᵀ / n_j, by batched subspace iteration.

``eigh`` of k large matrices is slow on a GPU and needs k·d² floats. A few rounds of Q ← qr(Ĉ_j Q) need only the product
Ĉ_j Q, which comes directly from the samples, in any number of batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, safe_reciprocal
from ._inputs import check_features, read_classes, unit_features
from ._linalg import Guard, symmetric_eigenpairs, working_dtype

Batches = Iterable[tuple[Tensor, Tensor]]
Method = Literal["subspace", "eigh"]

# The most floats of the k second moments: 1 GiB in float32.
MOMENT_BUDGET = 2**28
# Extra directions beside the wanted ones, and rounds. Decaying spectra lose at most 3e-5 of their energy, isotropic
# ones, whose directions are all alike, up to 3 % (tests/functional/test_eigen.py).
OVERSAMPLE = 10
ROUNDS = 12
# Up to so many samples in the largest class, eigh of n_j×n_j Gram matrices is faster, and it is exact.
FEW = 64


class Eigenpairs(NamedTuple):
    """Leading eigenpairs per class. Those of an absent class, or beyond a class's rank, have the value 0."""

    values: Tensor
    """(k, r), descending, of Ĉ_j."""
    vectors: Tensor
    """(k, d, r), orthonormal columns."""
    sizes: Tensor
    """n_j, (k,)."""


class Moments(NamedTuple):
    """Second moments Σ_i Π_ij z_i z_iᵀ, (k, d, d), and n_j, (k,); both can be added up over batches."""

    scatter: Tensor
    sizes: Tensor

    def product(self, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_i Π_ij z_i z_iᵀ Q_j per class, and n_j."""
        return self.scatter @ basis, self.sizes


def add_moments(total: Tensor, z: Tensor, classes: Classes, guard: Guard) -> None:
    """Add Σ_i Π_ij z_i z_iᵀ to ``total`` (k, d, d)."""
    if isinstance(classes, HardClasses):
        for group in classes.groups(guard):
            samples = group.gather(z)
            step = max(1, 2**24 // z.shape[1] ** 2)  # so many classes at a time: each needs a d×d matrix
            for start in range(0, len(samples), step):
                part = samples[start : start + step]
                total.index_add_(0, group.classes[start : start + step], part.mT @ part)
    else:
        for j in range(classes.num_classes):
            total[j].addmm_(z.T, z * classes.membership[:, j : j + 1])


def add_product(total: Tensor, z: Tensor, classes: Classes, basis: Tensor, guard: Guard) -> None:
    """Add Σ_i Π_ij z_i z_iᵀ Q_j to ``total`` (k, d, r), without any d×d matrix."""
    if isinstance(classes, HardClasses):
        for group in classes.groups(guard):
            samples = group.gather(z)
            total.index_add_(0, group.classes, samples.mT @ (samples @ basis[group.classes]))
    else:
        for j in range(classes.num_classes):
            total[j].addmm_(z.T, (z @ basis[j]) * classes.membership[:, j : j + 1])


def check_readable_again(batches: Batches) -> None:
    """``batches`` is not an iterator, which would be empty the second time."""
    if isinstance(batches, Iterator):
        raise ValueError(
            "batches can be read only once: pass a list, a DataLoader, or an object whose __iter__ starts again"
        )


class Samples:
    """Batches of (z, labels) that can be read again, checked whenever they are read."""

    def __init__(
        self,
        batches: Batches,
        num_classes: int,
        guard: Guard,
        *,
        normalize: bool = False,
        max_class_size: int | None = None,
    ) -> None:
        check_readable_again(batches)
        self.batches = batches
        self.num_classes = num_classes
        self.guard = dataclasses.replace(guard, synchronises=True)  # QR and eigh do so anyway
        self.normalize = normalize
        self.max_class_size = max_class_size
        self._opened: Iterator[tuple[Tensor, Tensor]] | None = iter(batches)
        first = next(self._opened, None)
        if first is None:
            raise ValueError("batches is empty: latching needs at least one batch of (z, labels)")
        self._first = first
        self._sizes: Tensor | None = None
        check_features(first[0], guard)
        self.like = torch.empty(0, first[0].shape[1], dtype=working_dtype(first[0]), device=first[0].device)
        self.dim = self.like.shape[1]

    def __iter__(self) -> Iterator[tuple[Tensor, Classes]]:
        for features, labels in self._read():
            z = unit_features(features, self.guard, self.normalize, self.dim).detach().to(self.like.dtype)
            if not self.guard.raises:  # it is flagged already; with NaN the eigensolver would raise
                z = torch.where(torch.isfinite(z), z, 0.0)
            yield z, read_classes(labels, z, self.num_classes, self.guard, self.max_class_size)

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._opened is None:
            yield from self.batches
        else:  # the first batch was read already, for its shape
            rest, self._opened = self._opened, None
            yield self._first
            yield from rest

    def few(self) -> tuple[Tensor, HardClasses] | None:
        """All samples, if they are one batch with at most FEW in each class."""
        if not isinstance(self.batches, list) or len(self.batches) > 1:
            return None
        z, classes = next(iter(self))
        if not isinstance(classes, HardClasses) or bool((classes.sizes > FEW).any()):
            return None
        return z, classes

    def _check_repeated(self, sizes: Tensor) -> None:
        if self._sizes is not None:
            self.guard.report(
                sizes != self._sizes,
                lambda: (
                    "batches gave other samples when read again: pass a list, or a DataLoader that gives all samples"
                ),
            )
        self._sizes = sizes

    def moments(self) -> Moments:
        """All second moments in one pass."""
        k, d = self.num_classes, self.dim
        scatter, sizes = self.like.new_zeros(k, d, d), self.like.new_zeros(k)
        for z, classes in self:
            add_moments(scatter, z, classes, self.guard)
            sizes += classes.sizes
        return Moments(scatter, sizes)

    def product(self, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_i Π_ij z_i z_iᵀ Q_j per class and n_j, in one pass."""
        total, sizes = torch.zeros_like(basis), self.like.new_zeros(self.num_classes)
        for z, classes in self:
            add_product(total, z, classes, basis, self.guard)
            sizes += classes.sizes
        self._check_repeated(sizes)
        return total, sizes


def leading_eigenpairs(source: Samples | Moments, count: int, method: Method, rounds: int = ROUNDS) -> Eigenpairs:
    """The ``count`` ≤ d leading eigenpairs of every class."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}")
    if method == "eigh":
        moments = source.moments() if isinstance(source, Samples) else source
        values, vectors = symmetric_eigenpairs(_mean(moments.scatter, moments.sizes))
        return _ordered(values, vectors, moments.sizes, count)
    if isinstance(source, Samples) and (few := source.few()) is not None:
        return _from_few(*few, count, source.guard)
    if isinstance(source, Samples):
        k, d, like = source.num_classes, source.dim, source.like
    else:
        k, d, like = len(source.sizes), source.scatter.shape[1], source.scatter
    width = min(count + OVERSAMPLE, d)
    basis = torch.linalg.qr(pseudo_random((d, width), like)).Q.expand(k, d, width)
    if width < d:
        for last in range(rounds - 1, -1, -1):
            basis = orthonormal_columns(source.product(basis)[0], roughly=last > 0)
    product, sizes = source.product(basis)
    values, rotation = symmetric_eigenpairs(_mean(basis.mT @ product, sizes))
    return _ordered(values, basis @ rotation, sizes, count)


def _from_few(z: Tensor, classes: HardClasses, count: int, guard: Guard) -> Eigenpairs:
    """From the Gram matrices of the classes' samples: if ZZᵀu = λu, then Zᵀu is an eigenvector of ZᵀZ."""
    k, d = classes.num_classes, z.shape[1]
    values, vectors = z.new_zeros(k, count), z.new_zeros(k, d, count)
    for group in classes.groups(guard):
        samples = group.gather(z)
        energies, mixing = symmetric_eigenpairs(samples @ samples.mT)
        known = min(count, samples.shape[1])
        values[group.classes, :known] = energies.flip(-1)[:, :known]
        vectors[group.classes, :, :known] = (samples.mT @ mixing).flip(-1)[:, :, :known]
    values = values * safe_reciprocal(classes.sizes).unsqueeze(1)
    return Eigenpairs(_above_noise(values, d), orthonormal_columns(vectors), classes.sizes)


def orthonormal_columns(y: Tensor, *, roughly: bool = False) -> Tensor:
    """Orthonormal columns with the span of each matrix (k, d, r), r ≪ d; beyond its rank they are arbitrary.

    ``roughly`` allows columns that are only well conditioned: enough between two rounds of an iteration.
    """
    return cholesky_qr(y, rounds=1 if roughly else 3) if y.is_cuda else torch.linalg.qr(y).Q


def cholesky_qr(y: Tensor, rounds: int = 3) -> Tensor:
    """The same by Q = YR⁻¹ with RᵀR = YᵀY: products and k small factors. Batched QR takes 10 ms and more on a GPU.

    YᵀY squares the condition number, so it is computed in float64, from unit columns. If the other columns leave less
    than 1e-7 of a column, a pseudo-random one replaces it. Everything is orthonormalised again, because of rounding.
    """
    wide = y.double()
    identity = torch.eye(y.shape[2], dtype=wide.dtype, device=y.device)
    filler = pseudo_random((y.shape[1], y.shape[2]), wide)
    for _ in range(rounds):
        wide = wide * safe_reciprocal(torch.linalg.vector_norm(wide, dim=1, keepdim=True))
        # with the shift, dependent columns do not fail: what is left of one is then its root, 1e-7
        factor, _ = torch.linalg.cholesky_ex(wide.mT @ wide + 1e-14 * identity)
        left = factor.diagonal(dim1=1, dim2=2).unsqueeze(1)
        wide = torch.linalg.solve_triangular(factor.mT, wide, upper=True, left=False)
        wide = torch.where(left > 2e-7, wide, filler)
    return wide.to(y.dtype)


def eigenpair_source(samples: Samples, num_samples: int | None, budget: int = MOMENT_BUDGET) -> Samples | Moments:
    """Second moments, in one pass, if they fit the budget; otherwise the samples, for a pass in every round.

    With ``num_samples`` known and in memory, also the samples if that needs fewer operations: if classes have fewer
    samples than half the dimension.
    """
    k, d = samples.num_classes, samples.dim
    few = num_samples is not None and 2 * num_samples < k * d
    return samples if few or k * d * d > budget else samples.moments()


def pseudo_random(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Fixed numbers that look random, in (−1, 1). They use no generator, and a graph can record them.

    cos(2π φ n²) of the running index n: quadratic Weyl sequences are equidistributed and uncorrelated.
    """
    total = 1
    for size in shape:
        total *= size
    n = torch.arange(1, total + 1, device=like.device, dtype=torch.float64)
    phase = (n * 0.6180339887498949).frac() * n
    return torch.cos(2 * torch.pi * phase.frac()).reshape(shape).to(like.dtype)


def _mean(total: Tensor, sizes: Tensor) -> Tensor:
    mean = total * safe_reciprocal(sizes)[:, None, None]
    return 0.5 * (mean + mean.mT)


def _ordered(values: Tensor, vectors: Tensor, sizes: Tensor, count: int) -> Eigenpairs:
    values = _above_noise(values.flip(-1)[:, :count], vectors.shape[1])
    return Eigenpairs(values, vectors.flip(-1)[:, :, :count], sizes)


def _above_noise(values: Tensor, dim: int) -> Tensor:
    """The values, with 0 for those that are only rounding of sums over d features (or, for a small d, many samples)."""
    noise = torch.finfo(values.dtype).eps * max(dim, 128) * values[:, :1].clamp_min(0.0)
    return torch.where(values > noise, values, 0.0)
