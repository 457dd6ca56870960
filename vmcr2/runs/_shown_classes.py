"""Of many classes, those that a report shows: evenly spaced ones, so that the choice is neutral."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MANY = 500
"""Up to so many classes, a report has pictures of all."""
SHOWN = 200
"""Of more, it has pictures of so many."""


class ClassPart(NamedTuple):
    """The samples of the shown classes, under numbers of their own: 0 is the first shown class."""

    classes: Tensor
    """(c,) their numbers in the run"""
    rows: Tensor
    """(n,) where their samples are among all samples"""
    features: Tensor
    """(n, d)"""
    labels: Tensor
    """(n,) in 0..c − 1"""


def shown_classes(num_classes: int) -> Tensor:
    """Their numbers, ascending: all, or 200 from the first to the last.

    >>> shown_classes(100_000)[[0, 1, -1]]
    tensor([    0,   502, 99999])
    """
    if num_classes <= MANY:
        return torch.arange(num_classes)
    return torch.linspace(0, num_classes - 1, SHOWN, dtype=torch.float64).long()


def part_of(features: Tensor, labels: Tensor, num_classes: int) -> ClassPart:
    """The samples of the shown classes."""
    classes = shown_classes(num_classes).to(labels.device)
    if len(classes) == num_classes:  # no copy
        return ClassPart(classes, torch.arange(len(labels), device=labels.device), features, labels)
    place = labels.new_full((num_classes,), -1)
    place[classes] = torch.arange(len(classes), device=labels.device)
    own = place[labels]
    rows = (own >= 0).nonzero()[:, 0]
    return ClassPart(classes, rows, features[rows], own[rows])
