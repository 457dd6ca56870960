"""Setting training images aside, and the order in which an epoch sees the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared import UserError
from ..data import Split

_HOLDOUT_SEED = 20220331  # of no meaning, and never changed: every run of every seed holds out the same images


def hold_out(split: Split, count: int, num_classes: int) -> tuple[Split, Split]:
    """(training, held out): ``count`` images, each class by its share, the same for every run."""
    total = len(split.labels)
    if not 0 < count < total:
        raise UserError(f"holdout must lie between 1 and {total - 1} for these {total} training images, got {count}")
    generator = torch.Generator().manual_seed(_HOLDOUT_SEED)
    order = torch.randperm(total, generator=generator)
    sizes = torch.bincount(split.labels, minlength=num_classes)
    exact = sizes * count / total
    take = exact.floor().long()
    short = count - int(take.sum())
    take[(exact - take).argsort(descending=True, stable=True)[:short]] += 1
    held = torch.zeros(total, dtype=torch.bool)
    for j in range(num_classes):
        members = order[split.labels[order] == j]
        held[members[: int(take[j])]] = True
    return (
        Split(split.images[~held], split.labels[~held]),
        Split(split.images[held], split.labels[held]),
    )


def epoch_order(total: int, seed: int, epoch: int) -> Tensor:
    """The order of samples in an epoch: a function of seed and epoch, so that a resumed run needs no state for it."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(total, generator=generator)
