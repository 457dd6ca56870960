"""Latching (Algorithm 2) where a class owns its atoms: some classes at a time, so that memory does not grow with k."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from ._batch_classes import refuse_memberships
from ._blocks import Blocks
from ._eigen import (
    MOMENT_BUDGET,
    OVERSAMPLE,
    ROUNDS,
    Batches,
    Samples,
    check_readable_again,
    eigenpair_source,
    leading_eigenpairs,
    pseudo_random,
)
from ._inputs import check_features, read_labels
from ._linalg import Guard, full_precision
from ._projections import project_unit_columns

# The most floats of a block's second moments, or of its rows: 256 MiB in float32.
BLOCK_BUDGET = 2**26


def blank_atoms(atoms_per_class: int, dim: int, like: Tensor) -> Tensor:
    """The atoms of a class that has no samples, as rows, (s, d): arbitrary, and the same for all classes."""
    return project_unit_columns(pseudo_random((dim, atoms_per_class), like)).T.contiguous()


@full_precision
@torch.no_grad()
def latch_blocks(z: Tensor, labels: Tensor, atoms: Tensor, codes: Tensor, guard: Guard) -> None:
    """Each class's top s eigenpairs of Ĉ_j, of features (N, d) and labels: ``atoms`` (k, s, d), ``codes`` (k, s).

    A class without samples gets arbitrary unit atoms and zero codes. Beside its results, which it overwrites, it needs
    memory for the rows of one block of classes at a time.
    """
    k, s, d = atoms.shape
    check_features(z, guard, dim=d)
    refuse_memberships(labels)
    labels, _ = read_labels(labels, z, k, guard)
    order = torch.argsort(labels, stable=True)
    per_class = d * min(d, max(-(-len(z) // k), s + OVERSAMPLE))
    step = max(1, BLOCK_BUDGET // per_class)
    edges = torch.arange(0, k + step, step, device=labels.device).clamp_max(k)
    ends = torch.searchsorted(labels[order], edges).tolist()
    for number, (start, end) in enumerate(pairwise(ends)):
        rows = order[start:end]
        first = number * step
        part = Blocks(atoms[first : first + step], codes[first : first + step])
        _latch_part([(z[rows], labels[rows] - first)] if end > start else [], part, guard, len(rows))


@full_precision
@torch.no_grad()
def latch_blocks_batches(batches: Batches, atoms: Tensor, codes: Tensor, guard: Guard, *, normalize: bool) -> None:
    """The same of a training set in batches: one pass over them for each block of 2²⁸/d² classes."""
    k, _, d = atoms.shape
    check_readable_again(batches)
    step = max(1, MOMENT_BUDGET // d**2)
    for first in range(0, k, step):
        last = min(k, first + step)
        part = Blocks(atoms[first:last], codes[first:last])
        _latch_part(_OfClasses(batches, first, last, k, guard), part, guard, None, normalize=normalize)


class _OfClasses:
    """The rows of batches whose labels are in [first, last), with labels that begin at 0."""

    def __init__(self, batches: Batches, first: int, last: int, num_classes: int, guard: Guard) -> None:
        self.batches, self.first, self.last = batches, first, last
        self.num_classes, self.guard = num_classes, guard

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for z, given in self.batches:
            refuse_memberships(given)
            labels, _ = read_labels(given, z, self.num_classes, self.guard)
            here = (labels >= self.first) & (labels < self.last)
            if bool(here.any()):
                yield z[here], labels[here] - self.first


def _latch_part(
    batches: Batches, out: Blocks, guard: Guard, num_samples: int | None, *, normalize: bool = False
) -> None:
    k, s, d = out.atoms.shape
    out.codes.zero_()
    out.atoms.copy_(blank_atoms(s, d, out.atoms))
    if next(iter(batches), None) is None:
        return
    samples = Samples(batches, k, guard, normalize=normalize)
    if samples.dim != d:
        raise ValueError(f"batches have {samples.dim} features per row, expected {d} (dim)")
    width = min(s, d)
    pairs = leading_eigenpairs(eigenpair_source(samples, num_samples), width, "subspace", ROUNDS)
    found = (pairs.sizes > 0)[:, None, None]
    out.atoms[:, :width] = torch.where(found, pairs.vectors.mT.to(out.atoms.dtype), out.atoms[:, :width])
    out.codes[:, :width] = pairs.values
