"""Cross-entropy with its linear head: the yardstick that the rate reductions are compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..distributed import gather_rows, processes
from ..functional import Guard, TopClasses, check_features, top_logits


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
        logits = self.head(self._checked(z))
        if labels.ndim == 1 and not labels.is_floating_point():
            labels = labels.to(torch.int64)  # as the other losses do: torch takes some integers and not others
        if len(labels) != len(z):
            raise ValueError(f"labels has {len(labels)} entries, z has {len(z)} rows: one label per row")
        if weights is None:
            return nn.functional.cross_entropy(logits, labels)
        each = nn.functional.cross_entropy(logits, labels, reduction="none")
        return (each * weights).sum() / weights.sum().clamp_min(1e-12)

    def predict(self, z: Tensor) -> Tensor:
        """The class of the largest logit, (m,). At most 2²⁴ logits are in memory at a time."""
        return self.predict_top(z, 1).labels[:, 0]

    def predict_top(self, z: Tensor, count: int) -> TopClasses:
        """The classes of the ``count`` largest logits and these, (m, count) both, the largest first."""
        return top_logits(self._checked(z), self.head.weight, self.head.bias, count)

    def _checked(self, z: Tensor) -> Tensor:
        """Features in the head's precision; under autocast, which chooses the precision itself, as they are."""
        check_features(z, Guard(validate=False), dim=self.head.in_features, quick=True)
        return z if torch.is_autocast_enabled(z.device.type) else z.to(self.head.weight.dtype)
