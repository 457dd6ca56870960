"""Cross-entropy with its linear head: the yardstick that the rate reductions are compared with."""

from __future__ import annotations

from torch import Tensor, nn

from ..distributed import gather_rows, processes


class CrossEntropyLoss(nn.Module):
    """Mean cross-entropy of a linear layer on the features, as in the paper. Its parameters are trained too.

    Args:
        dim: d, the number of features.
        num_classes: k.
        gather: take the mean over the rows of all processes of ``torch.distributed``, as in :class:`MCR2Loss`. Without
            it each process has the mean over its own rows, and the mean of these is another one where processes have
            different numbers of rows. The head then gets the whole batch's gradient on every process.

    >>> import torch
    >>> loss = CrossEntropyLoss(4, 2)
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, dim: int, num_classes: int, *, gather: bool = False) -> None:
        super().__init__()
        self.gather = gather
        self.head = nn.Linear(dim, num_classes)

    def forward(self, z: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean over the samples, or their mean by ``weights`` (m,)."""
        if self.gather and processes() > 1:
            z, labels, *gathered = gather_rows(z, labels, *([] if weights is None else [weights]))
            weights = gathered[0] if gathered else None
        if weights is None:
            return nn.functional.cross_entropy(self.head(z), labels)
        each = nn.functional.cross_entropy(self.head(z), labels, reduction="none")
        return (each * weights).sum() / weights.sum().clamp_min(1e-12)

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit, (m,)."""
        logits: Tensor = self.head(z)
        return logits.argmax(1)
