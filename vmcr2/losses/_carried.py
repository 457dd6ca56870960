"""Class statistics of a memory on a GPU: kept up to date by the rows that come and go, and inverted one step early.

R_c with a memory needs S_j⁻¹z_i of the batch, with S_j = I + (c/n_j)(Σ zzᵀ over the memory and the batch). The part of
the memory does not need the batch's features: its inverse X_j is computed beside the step before. The batch's rows P of
a class then cost a small matrix only: S_j⁻¹Pᵀ = X_jPᵀ (I + (c/n_j) P X_j Pᵀ)⁻¹.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import Aside
from ..functional import ClassMoments, Guard, HardClasses, report_pivots, safe_reciprocal

_LANE = 5


class CarriedAhead(NamedTuple):
    """What a step needs from the labels and the memory."""

    classes: HardClasses
    """Of the batch."""
    scales: Tensor
    """c/n_j, (k,), n_j of the memory and the batch."""
    inverses: Tensor
    """X_j, (k, D, D), padded to whole blocks."""

    def tensors(self) -> list[Tensor]:
        """All that it holds."""
        return [*self.classes.tensors(), self.scales, self.inverses]


class CarriedStatistics:
    """Σ zzᵀ of each class's rows in a memory.

    Args:
        features: the memory's, (rows, d), float32 on a GPU. They stay where they are.
        labels: theirs, (rows,); −1 for an empty place.
        num_classes: k.
    """

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int) -> None:
        self.features, self.labels, self.num_classes = features, labels, num_classes
        self.moments = ClassMoments(num_classes, features.shape[1], features.device)
        self.room = torch.empty_like(self.moments.sums)
        self._writing: Aside | None = None
        self._in_use: tuple[Tensor, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """From all rows of the memory: what was added and subtracted one by one leaves rounding behind."""
        self.settle()
        self.moments.recompute(self.features, *self._by_class(self.labels).sorted())

    def look_ahead(self, classes: HardClasses, c: float, guard: Guard) -> CarriedAhead:
        """For a batch of these classes."""
        self.settle()
        sizes = self._by_class(self.labels).sizes + classes.sizes
        scales = c * safe_reciprocal(sizes)
        inverses = self.moments.inverses_of_identity_plus(scales, self.room)
        report_pivots(inverses, guard)
        return CarriedAhead(classes, scales, inverses)

    def replace(self, places: Tensor, features: Tensor, labels: Tensor) -> None:
        """Write rows into the memory, and their difference into the sums; beside what follows."""
        self._in_use = places, features, labels  # until the next step, by which all streams have met
        with Aside(features, lane=_LANE) as self._writing:
            order, starts, counts = self._by_class(self.labels[places]).sorted()
            self.moments.add(self.features, places[order], starts, counts, -1.0)
            self.features.index_copy_(0, places, features)
            self.labels.index_copy_(0, places, labels)
            self.moments.add(features, *self._by_class(labels).sorted(), 1.0)

    def settle(self) -> None:
        """Wait until the rows are written."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def _by_class(self, labels: Tensor) -> HardClasses:
        placed = torch.where(labels < 0, self.num_classes, labels)
        return HardClasses(placed, self.num_classes, torch.float32, None, vacant=True)
