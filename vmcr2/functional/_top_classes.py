"""The n likeliest classes of every point, in blocks of classes: memory does not grow with the number of classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._linalg import Guard, full_precision
from ._subspaces import check_points, no_subspace, projected_energies

# The most scores in memory at a time, of points in classes: 64 MiB in float32.
SCORE_BUDGET = 2**24
_CLASSES = 4096  # at a time


class TopClasses(NamedTuple):
    """The classes of every point, the likeliest first, and what they were compared by; (N, n) both."""

    labels: Tensor
    scores: Tensor


class RunningTop:
    """The largest ``count`` scores of every point so far, while blocks of classes go by.

    Of equal scores, the class with the lower number comes first if blocks come in order.
    """

    def __init__(self, points: int, count: int, like: Tensor) -> None:
        self.count = count
        self.scores = like.new_full((points, count), -torch.inf)
        self.labels = torch.zeros(points, count, dtype=torch.int64, device=like.device)

    def add(self, rows: slice, scores: Tensor, first: int) -> None:
        """Scores (rows, classes) of classes ``first``, ``first`` + 1, …"""
        if self.count == 1:
            top, at = scores.max(dim=1, keepdim=True)
        else:
            top, at = scores.topk(min(self.count, scores.shape[1]), dim=1)
        values = torch.cat([self.scores[rows], top], dim=1)
        labels = torch.cat([self.labels[rows], at + first], dim=1)
        order = values.argsort(dim=1, descending=True, stable=True)[:, : self.count]
        self.scores[rows], self.labels[rows] = values.gather(1, order), labels.gather(1, order)

    def found(self) -> TopClasses:
        """What is left."""
        return TopClasses(self.labels, self.scores)


@full_precision
def nearest_subspaces(
    z: Tensor, bases: Tensor, count: int, *, validate: bool = True, fault: Tensor | None = None
) -> TopClasses:
    """The ``count`` nearest subspaces of every point, with their residuals, ascending (Eq. 8 of the paper).

    A class without a subspace has the residual ∞, so it comes last. Blocks of points and classes bound the memory: at
    most 2²⁴ coordinates at a time, for any N and k.

    >>> nearest_subspaces(torch.tensor([[3.0, 4.0]]), torch.eye(2).unsqueeze(2), 2)
    TopClasses(labels=tensor([[1, 0]]), scores=tensor([[ 9., 16.]]))
    """
    z, bases = check_points(z, bases, Guard(validate, fault))
    _check_count(count, len(bases))
    absent = no_subspace(bases)
    top = RunningTop(len(z), count, z)
    for rows, classes, share in projected_energies(z, bases):
        top.add(rows, share.masked_fill_(absent[classes], -1.0), classes.start)
    labels, shares = top.found()
    residuals = (z.square().sum(1, keepdim=True) - shares).clamp_min_(0.0)
    return TopClasses(labels, residuals.masked_fill_(shares < 0, torch.inf))


@full_precision
@torch.no_grad()
def residuals_of(z: Tensor, bases: Tensor, labels: Tensor) -> Tensor:
    """‖(I − V_jV_jᵀ)z_i‖² of every point and one class j = ``labels``[i] for it, (N,).

    >>> residuals_of(torch.tensor([[3.0, 4.0]]), torch.eye(2).unsqueeze(2), torch.tensor([0]))
    tensor([16.])
    """
    z, bases = check_points(z, bases, Guard())
    rows = max(1, SCORE_BUDGET // (bases.shape[1] * bases.shape[2]))
    parts = [
        own.square().sum(1) - torch.einsum("nd,ndr->nr", own, bases[at]).square().sum(1)
        for own, at in zip(torch.split(z, rows), torch.split(labels, rows), strict=True)
    ]
    return torch.cat(parts).clamp_min_(0.0)


@torch.no_grad()
def top_logits(z: Tensor, weight: Tensor, bias: Tensor | None, count: int = 1) -> TopClasses:
    """The ``count`` largest logits zW + b of every point, W (k, d): at most 2²⁴ logits are in memory at a time.

    >>> top_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), None, 1)
    TopClasses(labels=tensor([[1]]), scores=tensor([[4.]]))
    """
    _check_count(count, len(weight))
    at_a_time = len(weight) if len(z) * len(weight) <= SCORE_BUDGET else _CLASSES
    points = max(1, SCORE_BUDGET // at_a_time)
    top: RunningTop | None = None
    for first in range(0, len(weight), at_a_time):
        own = slice(first, first + at_a_time)
        for start in range(0, len(z), points):
            rows = slice(start, start + points)
            logits = torch.nn.functional.linear(z[rows], weight[own], None if bias is None else bias[own])
            top = RunningTop(len(z), count, logits) if top is None else top
            top.add(rows, logits, first)
    return RunningTop(len(z), count, z).found() if top is None else top.found()


def _check_count(count: int, num_classes: int) -> None:
    if not 1 <= count <= num_classes:
        raise ValueError(f"count must lie in 1..{num_classes} (the number of classes), got {count}")
