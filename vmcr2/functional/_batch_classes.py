"""The classes of a batch under numbers of their own: work and memory then depend on the batch, not on all k classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._classes import HardClasses
from ._inputs import read_labels
from ._linalg import Guard, working_dtype


class BatchClasses(HardClasses):
    """The P distinct classes of a batch, numbered 0 … P−1 in the order of their labels.

    Where shapes must not depend on values there is room for ``max_classes``, by default min(m, k). The places that are
    left over repeat the last class, have no samples and count for nothing.

    Args:
        labels: checked, (m,).
        num_classes: k.
        dtype: of sizes and proportions.
        guard: says whether shapes are fixed; takes the report of more than ``max_classes`` classes.
        max_class_size: as in :class:`HardClasses`.
        max_classes: the most classes of a batch where shapes are fixed.
        importance: of the classes that it is asked for, (P,) -> (P,); None for 1.
    """

    def __init__(
        self,
        labels: Tensor,
        num_classes: int,
        dtype: torch.dtype,
        guard: Guard,
        *,
        max_class_size: int | None = None,
        max_classes: int | None = None,
        importance: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        ordered, order = torch.sort(labels, stable=True)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        rank = first.cumsum(0) - 1
        if guard.static(labels):
            room = min(len(labels), num_classes, max_classes or len(labels))
            guard.report(rank[-1] >= room, lambda: "a batch has more than max_classes classes")
            rank = rank.clamp_max(room - 1)
            self.which = ordered[-1].expand(room).clone().scatter_(0, rank, ordered)
        else:
            self.which = ordered[first]
        self.last = rank[-1]
        compact = torch.empty_like(labels).scatter_(0, order, rank)
        own = None if importance is None else importance(self.which).to(dtype)
        super().__init__(compact, len(self.which), dtype, max_class_size, importance=own)

    def fill_places(self, x: Tensor) -> Tensor:
        """``x`` (P, …) with the row of the last class in the places that are left over.

        Written back by :attr:`which`, a class then gets one value, however many places it has.
        """
        return x[torch.arange(len(x), device=x.device).minimum(self.last)]

    def tensors(self) -> list[Tensor]:
        """Also which classes they are."""
        return [self.which, self.last, *super().tensors()]


def refuse_memberships(labels: Tensor) -> None:
    """Block mode has no use for a table of m rows and k columns."""
    if isinstance(labels, Tensor) and labels.ndim == 2:
        raise ValueError("labels: block mode takes integer labels (m,); memberships (m, k) need block=False")


def read_batch_classes(
    labels: Tensor,
    z: Tensor,
    num_classes: int,
    guard: Guard,
    *,
    max_class_size: int | None = None,
    max_classes: int | None = None,
    importance: Callable[[Tensor], Tensor] | None = None,
) -> BatchClasses:
    """Integer labels (m,), checked against z."""
    refuse_memberships(labels)
    checked, num_classes = read_labels(labels, z, num_classes, guard)
    return BatchClasses(
        checked,
        num_classes,
        working_dtype(z),
        guard,
        max_class_size=max_class_size,
        max_classes=max_classes,
        importance=importance,
    )
