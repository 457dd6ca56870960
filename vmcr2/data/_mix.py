"""Two pictures mixed into one, which then belongs to two classes: mixup and CutMix with memberships.

Every decision is a hash of (seed, draw, sample), as in ``_augment``. A picture keeps at least half of itself, so that
its label is still the class of its larger part.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._keys import below, sample_keys, unit, words

Kind = Literal["mixup", "cutmix"]

_FIRST_WORD = 32  # of a sample's random words: the augmentations take those before


class Mix(NamedTuple):
    """What was decided for each sample, all (n,)."""

    share: Tensor
    """What a picture keeps of itself, from 1/2 to 1, float32."""
    top: Tensor
    left: Tensor
    side: Tensor
    """CutMix: the square that comes from the other picture."""


def decide_mix(numbers: Tensor, draw: Tensor, *, seed: int, size: int, kind: Kind) -> Mix:
    """The other picture's share is uniform in [0, 1/2); for CutMix that of a square of whole pixels.

    >>> mix = decide_mix(torch.arange(1000), torch.tensor(0), seed=0, size=32, kind="mixup")
    >>> 0.5 < mix.share.min() < 0.51, 0.99 < mix.share.max() <= 1
    (tensor(True), tensor(True))
    """
    drawn = words(sample_keys(numbers, draw, seed), _FIRST_WORD, 3)
    other = unit(drawn[:, 0]) / 2
    side = torch.round(torch.sqrt(other) * size).to(torch.int64)
    if kind == "cutmix":
        # a square of more than half the picture by rounding is one pixel too large
        side = torch.where(2 * side * side > size * size, side - 1, side)
        other = side * side / size**2
    room = size - side + 1
    return Mix((1 - other).float(), below(drawn[:, 1], room), below(drawn[:, 2], room), side)


def mix_pictures(x: Tensor, others: Tensor, mix: Mix, kind: Kind) -> Tensor:
    """``mix.share`` of each picture of x (n, C, H, W), and the rest of the same place in ``others``."""
    if kind == "mixup":
        return torch.lerp(others, x, mix.share.to(x.dtype)[:, None, None, None])
    steps = torch.arange(x.shape[-1], device=x.device)
    rows, columns = ((steps >= first[:, None]) & (steps < (first + mix.side)[:, None]) for first in (mix.top, mix.left))
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], others, x)


def mixed_memberships(labels: Tensor, others: Tensor, share: Tensor, num_classes: int) -> Tensor:
    """Π (n, k): ``share`` in a picture's own class, the rest in the other's.

    >>> mixed_memberships(torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([0.75, 0.6]), 2)
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]])
    """
    membership = share.new_zeros(len(labels), num_classes)
    membership.scatter_(1, labels[:, None], share[:, None])
    return membership.scatter_add_(1, others[:, None], 1 - share[:, None])
