"""Features around class directions, with pictures to go with them, and the training side of an evaluation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import Split
from vmcr2.runs._measure import TrainingSide


def features(count: int, dim: int, num_classes: int, *, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit rows around class directions; small noise: easy, large noise: mistakes."""
    generator = torch.Generator().manual_seed(seed)
    centres = nn.functional.normalize(torch.randn(num_classes, dim, generator=torch.Generator().manual_seed(77)), dim=1)
    labels = torch.randint(num_classes, (count,), generator=generator)
    z = centres[labels] + noise * torch.randn(count, dim, generator=generator) / dim**0.5
    return nn.functional.normalize(z, dim=1), labels


def pictures(labels: Tensor, *shape: int, seed: int = 0) -> Split:
    """One of noise for every label."""
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randint(0, 256, (len(labels), *shape), generator=generator, dtype=torch.uint8), labels)


def side_of(z: Tensor, labels: Tensor, num_classes: int) -> TrainingSide:
    """With subspaces, and without figures."""
    return TrainingSide(z, labels, NearestSubspace(num_classes).fit(z, labels), {})
