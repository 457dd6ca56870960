"""The likeliest classes of samples, in blocks of classes: memory does not grow with n·k."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import SCORE_BUDGET, RunningTop, residuals_of
from ._readout import ROWS, SUBSPACE, Readout


class TopAnswers(NamedTuple):
    """What is known of n samples, of their likeliest classes alone, the likeliest first."""

    labels: Tensor
    """(n, count) the classes' numbers"""
    probabilities: Tensor
    """(n, count), calibrated if the run is; all k of a sample sum to 1, these to less"""
    residuals: Tensor
    """(n, count) the share of a feature's energy outside the class's subspace, in [0, 1]"""
    novelty: Tensor
    """(n,) how foreign the sample is, in [0, 1]"""


@torch.no_grad()
def top_answers(readout: Readout, z: Tensor, count: int) -> TopAnswers:
    """The ``count`` likeliest classes of features (n, d), or all k if there are fewer.

    They are those of the read-out itself. Blocks of at most 2,000 rows and 2²⁴ coordinates bound the memory.

    >>> readout = Readout(torch.eye(3)[:, :, None], None, by="subspace", novelty_by="subspace", temperature=0.1)
    >>> top_answers(readout, torch.tensor([[0.0, 0.6, 0.8]]), 2).labels
    tensor([[2, 1]])
    """
    count = min(count, len(readout.bases))
    parts = [_block(readout, block, count) for block in torch.split(z, ROWS)]
    return TopAnswers(*(torch.cat(own) for own in zip(*parts, strict=True)))


def _block(readout: Readout, z: Tensor, count: int) -> TopAnswers:
    k, _, r = readout.bases.shape
    at_a_time = max(1, SCORE_BUDGET // (max(1, len(z)) * r))
    top = RunningTop(len(z), count, z.float())
    # of scores / T: the sum of exponentials over all classes
    total = torch.full((len(z),), -torch.inf, device=z.device)
    novelty = torch.full((len(z),), torch.inf, device=z.device)
    for first in range(0, k, at_a_time):
        classes = slice(first, min(first + at_a_time, k))
        residuals = readout.residuals(z, classes)
        scores = readout.scores(z, residuals, classes)
        top.add(slice(None), scores, first)
        total = torch.logaddexp(total, (scores / readout.temperature).logsumexp(1))
        novelty = torch.minimum(novelty, readout.foreign(residuals, classes))
    labels, scores = top.found()
    probabilities = (scores / readout.temperature - total[:, None]).exp()
    if readout.novelty_by != SUBSPACE:
        novelty = 1.0 - probabilities[:, 0]
    own = [residuals_of(z.float(), readout.bases, labels[:, at]).clamp_max(1.0) for at in range(count)]
    return TopAnswers(labels, probabilities, torch.stack(own, dim=1), novelty)
