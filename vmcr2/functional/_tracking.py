"""Latching that a CUDA graph can contain: a few rounds of subspace iteration from the atoms that are there.

Fixed shapes, products and small Cholesky factors only. ``eigh`` waits for the device; orthogonal iteration from atoms
that are almost right needs none, because its columns themselves go to the eigenvectors, the largest first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._blocks import Blocks
from ._classes import HardClasses, safe_reciprocal
from ._eigen import orthonormal_columns
from ._linalg import full_precision

ROUNDS = 3


@full_precision
@torch.no_grad()
def track_atoms(
    z: Tensor, labels: Tensor, dictionary: Tensor, num_classes: int, class_size: int, rounds: int = ROUNDS
) -> tuple[Tensor, Tensor, Tensor]:
    """Each class's atoms after ``rounds`` of Q ← orth(Ĉ_j Q), their codes diag(QᵀĈ_jQ), and n_j: (d, q), (q, k), (k,).

    A label −1 marks a row of no class. Of a class with more than ``class_size`` rows only so many are
    used. For orthonormal Q these codes minimise ‖Ĉ_j − Q Diag(Â_j) Qᵀ‖. A class without rows gets codes 0.
    """
    d, q = dictionary.shape
    s, width = q // num_classes, min(q // num_classes, d)
    classes = HardClasses(torch.where(labels < 0, num_classes, labels), num_classes, z.dtype, None, vacant=True)
    members = classes.padded(min(class_size, len(z))).gather(z)
    atoms = dictionary.to(z.dtype).reshape(d, num_classes, s).transpose(0, 1)
    basis = atoms[:, :, :width]
    basis = _iterated(lambda q: members.mT @ (members @ q), basis, rounds)
    used = classes.sizes.clamp(1, members.shape[1]).unsqueeze(1)
    values = _above_noise((members @ basis).square().sum(1) / used, d)
    found = torch.cat([basis, atoms[:, :, width:]], dim=2)  # more atoms than dimensions: the rest stay as they are
    values = torch.nn.functional.pad(values, (0, s - width))
    codes = torch.diag_embed(values.T).transpose(0, 1).reshape(q, num_classes)
    return found.transpose(0, 1).reshape(d, q), codes, classes.sizes


@torch.no_grad()
def track_blocks(members: Tensor, sizes: Tensor, blocks: Blocks, prior: Tensor, rounds: int = ROUNDS) -> Blocks:
    """Each class's atoms and codes after ``rounds`` of Q ← orth(C_j Q), of C_j from rows and from what was known.

    C_j = (Σ zzᵀ + p_j·Γ_jDiag(Â_j)Γ_jᵀ/tr Â_j)/(n_j + p_j): atoms and codes stand for the rows that they came from,
    and count as ``prior`` p_j (P,) rows. ``members`` (P, n, d) are the n_j ``sizes`` (P,) rows, padded with zeros.
    """
    atoms, codes = blocks
    s, d = atoms.shape[1:]
    width = min(s, d)
    known = codes * (prior * safe_reciprocal(codes.sum(1))).unsqueeze(1)

    def product(q: Tensor) -> Tensor:
        return members.mT @ (members @ q) + atoms.mT @ (known.unsqueeze(2) * (atoms @ q))

    basis = _iterated(product, atoms[:, :width].mT, rounds)
    rows = (sizes.clamp(max=members.shape[1]) + prior).clamp_min(1.0).unsqueeze(1)
    values = _above_noise((basis * product(basis)).sum(1) / rows, d)
    found = torch.cat([basis.mT, atoms[:, width:]], dim=1)
    return Blocks(found, torch.nn.functional.pad(values, (0, s - width)))


def _iterated(product: Callable[[Tensor], Tensor], basis: Tensor, rounds: int) -> Tensor:
    for last in range(rounds - 1, -1, -1):
        basis = orthonormal_columns(product(basis), roughly=last > 0)
    return basis


def _above_noise(values: Tensor, dim: int) -> Tensor:
    noise = torch.finfo(values.dtype).eps * max(dim, 128) * values.amax(1, keepdim=True)
    return torch.where(values > noise, values, 0.0)
