"""Latching (Algorithm 2): dictionary and codes from the leading eigenpairs of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from ._eigen import MOMENT_BUDGET, ROUNDS, Batches, Method, Samples, eigenpair_source, leading_eigenpairs, pseudo_random
from ._inputs import check_count
from ._linalg import Guard, full_precision
from ._projections import project_unit_columns


def latch(
    z: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    atoms_per_class: int,
    method: Method = "subspace",
    rounds: int = ROUNDS,
    budget: int = MOMENT_BUDGET,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Γ and Â from the top s eigenpairs of each class's second moment (Algorithm 2 of the paper): (d, s·k), (s·k, k).

    Class j owns the columns j·s … (j+1)·s of Γ; its codes there are the eigenvalues of Ĉ_j = Z_jᵀZ_j/n_j, else 0.
    Beyond a class's rank the codes are 0. A class without samples gets arbitrary unit atoms and zero codes.

    Args:
        z: features (m, d).
        labels: integers (m,) or memberships (m, k).
        num_classes: k.
        atoms_per_class: s = q/k.
        method: "subspace" (batched subspace iteration) or "eigh" (the oracle: k matrices d×d).
        rounds: of subspace iteration.
        budget: the most floats of the k·d² second moments; above it the products are computed from the samples.
        max_class_size: as in :func:`rate_reduction`.
        validate: check the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> dictionary, codes = latch(z, torch.tensor([0, 0, 1]), 2, atoms_per_class=1)
    >>> dictionary.abs(), codes
    (tensor([[1., 0.],
            [0., 1.]]), tensor([[1., 0.],
            [0., 1.]]))
    """
    samples = Samples([(z, labels)], num_classes, Guard(validate, fault), max_class_size=max_class_size)
    return _latch(samples, samples.like, atoms_per_class, method, rounds, budget, num_samples=len(z))


def latch_batches(
    batches: Batches,
    num_classes: int,
    *,
    atoms_per_class: int,
    method: Method = "subspace",
    rounds: int = ROUNDS,
    budget: int = MOMENT_BUDGET,
    normalize: bool = False,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`latch` over a whole training set that comes in batches of (z, labels).

    ``batches`` is iterated once if the k·d² floats of the second moments fit ``budget`` (2²⁸ by default: 1 GiB in
    float32), otherwise up to ``rounds + 1`` times. Its features must be the same each time (evaluation mode, no
    augmentation); ``normalize`` scales the rows to unit length.

    >>> batches = [(torch.tensor([[1.0, 0.0]]), torch.tensor([0])), (torch.tensor([[0.0, 1.0]]), torch.tensor([1]))]
    >>> dictionary, codes = latch_batches(batches, 2, atoms_per_class=1)
    >>> codes
    tensor([[1., 0.],
            [0., 1.]])
    """
    guard = Guard(validate, fault)
    samples = Samples(batches, num_classes, guard, normalize=normalize, max_class_size=max_class_size)
    return _latch(samples, samples.like, atoms_per_class, method, rounds, budget, num_samples=None)


@full_precision  # on the device of ``like``: batches are read in here
@torch.no_grad()
def _latch(
    samples: Samples,
    like: Tensor,
    atoms_per_class: int,
    method: Method,
    rounds: int,
    budget: int,
    num_samples: int | None,
) -> tuple[Tensor, Tensor]:
    check_count(atoms_per_class, "atoms_per_class")
    k, d, s = samples.num_classes, samples.dim, atoms_per_class
    source = eigenpair_source(samples, num_samples, budget)
    pairs = leading_eigenpairs(source, min(s, d), method, rounds)
    filler = project_unit_columns(pseudo_random((d, k * s), like)).reshape(d, k, s).transpose(0, 1)
    atoms = torch.cat([pairs.vectors, filler[:, :, d:]], dim=2)  # more atoms than dimensions: the rest are arbitrary
    atoms = torch.where(pairs.sizes[:, None, None] > 0, atoms, filler)
    values = torch.nn.functional.pad(pairs.values, (0, max(0, s - d)))
    dictionary = atoms.transpose(0, 1).reshape(d, k * s)
    codes = torch.diag_embed(values.T).transpose(0, 1).reshape(k * s, k)
    return dictionary, codes
