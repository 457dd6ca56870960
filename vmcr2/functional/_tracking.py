"""Latching that a CUDA graph can contain: a few rounds of subspace iteration from the atoms that are there.

Fixed shapes, products and small Cholesky factors only. ``eigh`` waits for the device; orthogonal iteration from atoms
that are almost right needs none, because its columns themselves go to the eigenvectors, the largest first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._classes import HardClasses
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
    for last in range(rounds - 1, -1, -1):
        basis = orthonormal_columns(members.mT @ (members @ basis), roughly=last > 0)
    used = classes.sizes.clamp(1, members.shape[1]).unsqueeze(1)
    values = (members @ basis).square().sum(1) / used
    noise = torch.finfo(values.dtype).eps * max(d, 128) * values.amax(1, keepdim=True)
    values = torch.where(values > noise, values, 0.0)
    found = torch.cat([basis, atoms[:, :, width:]], dim=2)  # more atoms than dimensions: the rest stay as they are
    values = torch.nn.functional.pad(values, (0, s - width))
    codes = torch.diag_embed(values.T).transpose(0, 1).reshape(q, num_classes)
    return found.transpose(0, 1).reshape(d, q), codes, classes.sizes
