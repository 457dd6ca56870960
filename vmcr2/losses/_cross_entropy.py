"""Cross-entropy with its linear head: the yardstick that the rate reductions are compared with."""

from __future__ import annotations

from torch import Tensor, nn


class CrossEntropyLoss(nn.Module):
    """Mean cross-entropy of a linear layer on the features, as in the paper. Its parameters are trained too.

    Args:
        dim: d, the number of features.
        num_classes: k.

    >>> import torch
    >>> loss = CrossEntropyLoss(4, 2)
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, num_classes)

    def forward(self, z: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean over the samples, or their mean by ``weights`` (m,)."""
        if weights is None:
            return nn.functional.cross_entropy(self.head(z), labels)
        each = nn.functional.cross_entropy(self.head(z), labels, reduction="none")
        return (each * weights).sum() / weights.sum().clamp_min(1e-12)

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit, (m,)."""
        logits: Tensor = self.head(z)
        return logits.argmax(1)
