"""Class subspaces (uncentred), distances to them (Eq. 8), and how orthogonal they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import Classes, HardClasses
from ._eigen import (
    MOMENT_BUDGET,
    OVERSAMPLE,
    ROUNDS,
    Eigenpairs,
    Method,
    Moments,
    Samples,
    eigenpair_source,
    leading_eigenpairs,
)
from ._inputs import check_count, check_dense, check_features, largest_entries, read_classes
from ._linalg import Guard, full_precision, working_dtype

# The most coordinates in memory at a time, of points in all classes' bases: 64 MiB in float32.
_COORDINATE_BUDGET = 2**24
# The most floats of samples and directions of the classes that are fitted at a time: 256 MiB in float32.
_FITTING_BUDGET = 2**26
# Entries of orthonormal bases are at most 1; this only keeps squares in range.
_LARGEST_BASIS = 1e3


class ClassSubspaces(NamedTuple):
    """An orthonormal basis per class, (k, d, r), and the eigenvalues of Ĉ_j along it, (k, r), descending.

    Columns beyond a class's rank, and all columns of an absent class, are zero: no point is near to them.
    """

    bases: Tensor
    energies: Tensor


def default_components(dim: int, num_classes: int) -> int:
    """⌊d/k⌋ as in the paper, at least 1."""
    return max(1, dim // num_classes)


@full_precision
def class_subspaces(
    z: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    num_components: int | None = None,
    method: Method = "subspace",
    rounds: int = 2 * ROUNDS,
    budget: int = MOMENT_BUDGET,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> ClassSubspaces:
    """The top r principal directions of each class's uncentred second moment: V^(j) of Eq. 8 of the paper.

    Args:
        z: features (m, d).
        labels: integers (m,) or memberships (m, k).
        num_classes: k; by default the largest label plus one, or the memberships' columns.
        num_components: r, ⌊d/k⌋ by default, at least 1.
        method: "subspace" (batched subspace iteration) or "eigh" (the oracle).
        rounds: of subspace iteration.
        budget: the most floats of the k·d² second moments.
        max_class_size: as in :func:`rate_reduction`.
        validate: check the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> spaces = class_subspaces(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> spaces.bases.shape, spaces.energies[0]
    (torch.Size([2, 4, 2]), tensor([0.5000, 0.5000]))
    """
    guard = Guard(validate, fault)
    classes, r = _checked(z, labels, num_classes, num_components, guard)
    blocks = list(_class_blocks(z, labels, classes, r))
    parts = [
        _fitted(z[rows], own, size, r, guard, method=method, rounds=rounds, budget=budget, largest=max_class_size)
        for rows, own, size in blocks
    ]
    if len(parts) == 1:
        return parts[0]
    return ClassSubspaces(torch.cat([part.bases for part in parts]), torch.cat([part.energies for part in parts]))


def _checked(
    z: Tensor, labels: Tensor, num_classes: int | None, num_components: int | None, guard: Guard
) -> tuple[Classes, int]:
    check_features(z, guard)
    classes = read_classes(labels, z, num_classes, guard)
    r = num_components if num_components is not None else default_components(z.shape[1], classes.num_classes)
    if not 1 <= r <= z.shape[1]:
        raise ValueError(f"num_components must lie in 1..{z.shape[1]} (the dimension), got {r}")
    check_count(r, "num_components")
    return classes, r


def _class_blocks(z: Tensor, labels: Tensor, classes: Classes, r: int) -> Iterator[tuple[slice | Tensor, Tensor, int]]:
    """Rows, labels and number of the classes that are fitted together; one block if all of them fit the budget."""
    k = classes.num_classes
    per_class = z.shape[1] * (r + OVERSAMPLE + -(-len(z) // k))
    at_a_time = max(1, _FITTING_BUDGET // per_class)
    if k <= at_a_time or not isinstance(classes, HardClasses):
        yield slice(None), labels, k
        return
    order, starts, sizes = classes.sorted()
    ends = (starts + sizes).tolist()
    for first in range(0, k, at_a_time):
        last = min(first + at_a_time, k)
        rows = order[ends[first - 1] if first else 0 : ends[last - 1]]
        yield rows, classes.labels[rows] - first, last - first


@torch.no_grad()
def _fitted(
    z: Tensor,
    labels: Tensor,
    num_classes: int,
    r: int,
    guard: Guard,
    *,
    method: Method = "subspace",
    rounds: int = 2 * ROUNDS,
    budget: int = MOMENT_BUDGET,
    largest: int | None = None,
) -> ClassSubspaces:
    if not len(z):  # a block of classes without samples
        return ClassSubspaces(z.new_zeros(num_classes, z.shape[1], r), z.new_zeros(num_classes, r))
    samples = Samples([(z, labels)], num_classes, guard, max_class_size=largest)
    source = eigenpair_source(samples, len(z), budget)
    return _keep_energetic(leading_eigenpairs(source, r, method, rounds))


@full_precision
def subspaces_from_moments(scatter: Tensor, sizes: Tensor, num_components: int) -> ClassSubspaces:
    """Class subspaces from the classes' second moments, (k, d, d), and sizes, (k,)."""
    return _keep_energetic(leading_eigenpairs(Moments(scatter, sizes), num_components, "subspace", 2 * ROUNDS))


def _keep_energetic(pairs: Eigenpairs) -> ClassSubspaces:
    return ClassSubspaces(pairs.vectors * (pairs.values > 0).unsqueeze(1), pairs.values)


@full_precision
def subspace_residuals(z: Tensor, bases: Tensor, *, validate: bool = True, fault: Tensor | None = None) -> Tensor:
    """‖(I − V_jV_jᵀ)z_i‖² of every point and class, (N, k) (Eq. 8 of the paper), as ‖z_i‖² − ‖V_jᵀz_i‖².

    >>> subspace_residuals(torch.tensor([[3.0, 4.0]]), torch.eye(2).unsqueeze(2))
    tensor([[16.,  9.]])
    """
    z, bases = check_points(z, bases, Guard(validate, fault))
    energy = z.square().sum(1, keepdim=True)
    residuals = z.new_empty(len(z), len(bases))
    for rows, classes, share in projected_energies(z, bases):
        residuals[rows, classes] = energy[rows] - share
    return residuals.clamp_min_(0.0)


@full_precision
def nearest_subspace(z: Tensor, bases: Tensor, *, validate: bool = True, fault: Tensor | None = None) -> Tensor:
    """argmin_j ‖(I − V_jV_jᵀ)z_i‖² of every point, (N,) (Eq. 8 of the paper), in memory that does not grow with N·k.

    >>> nearest_subspace(torch.tensor([[3.0, 4.0]]), torch.eye(2).unsqueeze(2))
    tensor([1])
    """
    z, bases = check_points(z, bases, Guard(validate, fault))
    absent = no_subspace(bases)  # no point is predicted as it, not even one orthogonal to all others
    best = z.new_full((len(z),), -2.0)
    label = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    for rows, classes, share in projected_energies(z, bases):
        top, index = share.masked_fill_(absent[classes], -1.0).max(dim=1)
        better = top > best[rows]
        best[rows] = torch.where(better, top, best[rows])
        label[rows] = torch.where(better, index + classes.start, label[rows])
    return label


@full_precision
def subspace_overlap(bases: Tensor) -> Tensor:
    """‖V_iᵀV_j‖_F² / min(r_i, r_j), (k, k): the mean squared cosine of the principal angles; 0 where orthogonal.

    >>> subspace_overlap(torch.eye(2).unsqueeze(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    _check_bases(bases, Guard())
    bases = bases.to(working_dtype(bases))
    k, d, r = bases.shape
    ranks = (bases != 0).any(1).sum(1)
    smaller = torch.minimum(ranks.unsqueeze(1), ranks.unsqueeze(0)).clamp_min(1)
    points = bases.transpose(1, 2).reshape(-1, d)  # every basis vector as a point, class after class
    owners = torch.arange(len(points), device=bases.device) // r
    overlap = bases.new_zeros(k, k)
    for rows, classes, share in projected_energies(points, bases):
        overlap[:, classes].index_add_(0, owners[rows], share)
    return overlap / smaller


@full_precision
def principal_angles(bases: Tensor) -> Tensor:
    """Principal angles between every two class subspaces in radians, ascending, (k, k, r); π/2 where orthogonal.

    A class of fewer than r dimensions has π/2 in the missing places. Angles near 0 are accurate to the square root of
    the precision of ``bases``: about 5e-4 in float32.

    >>> principal_angles(torch.eye(2).unsqueeze(2)).squeeze()
    tensor([[0.0000, 1.5708],
            [1.5708, 0.0000]])
    """
    _check_bases(bases, Guard())
    dtype = working_dtype(bases)
    bases = bases.double()
    angles = [torch.linalg.svdvals(basis.mT @ bases).clamp(0.0, 1.0).arccos() for basis in bases]
    return torch.stack(angles).to(dtype)


def no_subspace(bases: Tensor) -> Tensor:
    """Which classes have none, (k,): all their columns are zero."""
    return (bases == 0).all(2).all(1)


def check_points(z: Tensor, bases: Tensor, guard: Guard) -> tuple[Tensor, Tensor]:
    """Points and bases that fit together, in one precision."""
    _check_bases(bases, guard)
    check_features(z, guard, dim=bases.shape[1])
    dtype = working_dtype(z, bases)
    return z.detach().to(dtype), bases.to(dtype)


def _check_bases(bases: Tensor, guard: Guard) -> None:
    if not isinstance(bases, Tensor) or bases.is_nested or bases.ndim != 3 or 0 in bases.shape:
        got = f"shape {tuple(bases.shape)}" if isinstance(bases, Tensor) and not bases.is_nested else type(bases)
        raise ValueError(f"bases must be (k, d, r), not empty; got {got}")
    check_dense(bases, "bases")
    bad = ~(largest_entries(bases) <= _LARGEST_BASIS)
    guard.report(bad, lambda: f"bases has NaN, inf or a number above {_LARGEST_BASIS:g}: they must be orthonormal")


def projected_energies(z: Tensor, bases: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """‖V_jᵀz_i‖² in blocks of points and classes that keep the coordinates within the budget."""
    k, d, r = bases.shape
    per_block = max(1, min(k, 1024 // r))
    points = max(1, _COORDINATE_BUDGET // (per_block * r))
    for first in range(0, k, per_block):
        classes = slice(first, min(first + per_block, k))
        flat = bases[classes].transpose(0, 1).reshape(d, -1)
        for start in range(0, len(z), points):
            rows = slice(start, min(start + points, len(z)))
            yield rows, classes, (z[rows] @ flat).square_().view(-1, classes.stop - first, r).sum(2)
