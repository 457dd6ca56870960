"""From unit features to answers: classes, probabilities, residuals, novelty. Python, export and server use it."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..functional import SCORE_BUDGET

HEAD, SUBSPACE = "head", "subspace"
"""What a run predicts by: a linear layer on the features, or the nearest class subspace."""
ALL = slice(None)
ROWS = 2000
"""At a time: coordinates in all subspaces take memory."""


class Answers(NamedTuple):
    """What is known of n samples."""

    labels: Tensor
    """(n,) the classes' numbers"""
    probabilities: Tensor
    """(n, k), calibrated if the run is"""
    residuals: Tensor
    """(n, k) the share of a feature's energy outside each class's subspace, in [0, 1]"""
    novelty: Tensor
    """(n,) how foreign the sample is, in [0, 1]"""


class Readout(nn.Module):
    """softmax(scores / T), where scores are a head's logits or minus the residuals of the class subspaces.

    Args:
        bases: orthonormal bases of the class subspaces, (k, d, r); zero for a class that has none.
        head: the linear layer, if there is one.
        by: "head" or "subspace", what decides.
        novelty_by: "subspace" (the smallest residual) or "head" (1 − the largest probability), for features that were
            not trained to lie in subspaces.
        temperature: T. 1 leaves the scores as they are.
        scales: what each class's residual is multiplied by where classes are compared, (k,); ones by default.
        gains: what the share inside each class's subspace is multiplied by for the novelty, (k,); ones by default.
            Both are for classes that were added, whose subspaces come from a few samples.

    It has no branch on values and no fixed batch size, so it can be exported.

    >>> readout = Readout(torch.eye(3)[:, :, None], None, by="subspace", novelty_by="subspace", temperature=0.1)
    >>> answers = readout(torch.tensor([[0.0, 0.6, 0.8]]))
    >>> answers.labels, answers.residuals
    (tensor([2]), tensor([[1.0000, 0.6400, 0.3600]]))
    """

    bases: Tensor
    absent: Tensor
    temperature: Tensor
    scales: Tensor
    gains: Tensor

    def __init__(
        self,
        bases: Tensor,
        head: nn.Linear | None,
        *,
        by: str,
        novelty_by: str,
        temperature: float = 1.0,
        scales: Tensor | None = None,
        gains: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.by, self.novelty_by = by, novelty_by
        self.head = head
        # in one layout: products of the same numbers in another one are summed in another order
        self.register_buffer("bases", bases.float().contiguous())
        self.register_buffer("absent", (bases == 0).all(2).all(1))
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32, device=bases.device))
        for name, given in (("scales", scales), ("gains", gains)):
            self.register_buffer(name, torch.ones(len(bases), device=bases.device) if given is None else given.float())

    def residuals(self, z: Tensor, classes: slice = ALL) -> Tensor:
        """‖(I − V_jV_jᵀ)z‖² of unit features, (n, k), or of some of the classes."""
        bases = self.bases[classes]
        k, d, r = bases.shape
        coordinates = z.float() @ bases.transpose(0, 1).reshape(d, k * r)
        inside = coordinates.square().reshape(-1, k, r).sum(2)
        return (1.0 - inside).clamp(0.0, 1.0)

    def scores(self, z: Tensor, residuals: Tensor, classes: slice = ALL) -> Tensor:
        """(n, k): larger is likelier. A class without a subspace is never the answer of the subspaces."""
        if self.by == HEAD and self.head is not None:
            if classes == ALL:
                return cast(Tensor, self.head(z.float()))
            bias = None if self.head.bias is None else self.head.bias[classes]
            return nn.functional.linear(z.float(), self.head.weight[classes], bias)
        # residuals are at most 1: −4 is below all
        return torch.where(self.absent[classes], -4.0, -residuals * self.scales[classes])

    def foreign(self, residuals: Tensor, classes: slice = ALL) -> Tensor:
        """(n,) the novelty by the subspaces, from the residuals of some classes."""
        return (residuals - (self.gains[classes] - 1.0) * (1.0 - residuals)).clamp_min(0.0).amin(1)

    def forward(self, z: Tensor) -> Answers:
        """Answers for features (n, d)."""
        residuals = self.residuals(z)
        scores = self.scores(z, residuals)
        probabilities = torch.softmax(scores / self.temperature, dim=1)
        novelty = self.foreign(residuals) if self.novelty_by == SUBSPACE else 1.0 - probabilities.amax(1)
        return Answers(scores.argmax(1), probabilities, residuals, novelty)

    def at(self, temperature: float) -> Readout:
        """The same read-out at another temperature."""
        return Readout(
            self.bases,
            self.head,
            by=self.by,
            novelty_by=self.novelty_by,
            temperature=temperature,
            scales=self.scales,
            gains=self.gains,
        )

    @torch.no_grad()
    def in_blocks(self, z: Tensor) -> Answers:
        """The same for any number of features, in blocks of rows. What it returns has n·k probabilities and residuals:
        for many classes take :func:`top_answers`."""
        k, _, r = self.bases.shape
        parts = [self(block) for block in torch.split(z, max(1, min(ROWS, SCORE_BUDGET // (k * r))))]
        return Answers(*(torch.cat(own) for own in zip(*parts, strict=True)))
