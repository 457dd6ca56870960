"""From classes and batches to an objective, on data that nobody has tuned for. Its settings are its own ``rule``.

How each number was found, and what it costs to be wrong, is in docs/defaults.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._objective import room

ENOUGH = 1.0
"""Samples of a class in a batch, for each dimension that the class has room for, from which the exact rate is used."""


def default_dim(num_classes: int) -> int:
    """13 per class up to the paper's 128 (10 classes), at least its 5 per class (500 for 100 classes), at most 512.

    A step costs d³ and more. But k orthogonal subspaces need k dimensions: above 512 classes each class has one.

    >>> default_dim(2), default_dim(10), default_dim(100), default_dim(1000)
    (26, 128, 500, 1000)
    """
    return max(num_classes, min(512, max(5 * num_classes, min(128, 13 * num_classes))))


def choose_objective(class_sizes: Sequence[int], batch_size: int, dim: int) -> str:
    """The name of the objective for classes of these sizes, in batches of ``batch_size`` with ``dim`` features.

    R_c of a batch says something about a class only if the batch has about as many of its samples as the class has
    room for dimensions, ⌊d/k⌋. There the exact rate is used, elsewhere the variational one, whose dictionary remembers
    classes between batches. Both are composed with cross-entropy: its head is the more accurate read-out.

    >>> choose_objective([5000] * 10, batch_size=1000, dim=128), choose_objective([20] * 1000, 500, 1000)
    ('ce+mcr2', 'ce+vmcr2')
    """
    classes = len(class_sizes)
    in_a_batch = min(batch_size, sum(class_sizes)) / classes
    return "ce+mcr2" if in_a_batch >= ENOUGH * room(dim, classes) else "ce+vmcr2"
