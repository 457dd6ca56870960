"""A ring of past features: a fixed number of rows, of which a batch replaces the oldest."""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared import PreciseBuffers, precise_dtype
from ..functional import refuse_transforms


class RememberedFeatures(PreciseBuffers):
    """Features of past batches as buffers, with their labels or memberships; nothing here waits for the device."""

    memory_features: Tensor
    memory_labels: Tensor
    memory_memberships: Tensor
    memory_next: Tensor

    def _make_memory(self, rows: int, dim: int, num_classes: int | None = None) -> None:
        """With memberships in so many classes; with labels where it is None."""
        self.register_buffer("memory_features", torch.zeros(rows, dim, dtype=precise_dtype()))
        if num_classes is None:
            self.register_buffer("memory_labels", torch.full((rows,), -1, dtype=torch.int64))
        else:
            self.register_buffer("memory_memberships", torch.zeros(rows, num_classes, dtype=precise_dtype()))
        self.register_buffer("memory_next", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def _remember(self, z: Tensor, targets: Tensor) -> None:
        """Write at most as many rows as there are places over the oldest ones, in place.

        ``targets`` are their labels (m,), or memberships (m, k) where the memory has these.
        """
        refuse_transforms(z)
        places_in_all = len(self.memory_features)
        z = z.to(self.memory_features.dtype)
        soft = targets.ndim == 2
        # a row with NaN would spoil all later steps: its place stays empty
        sound = torch.isfinite(z.sum(1) + targets.sum(1) if soft else z.sum(1))
        places = (self.memory_next + torch.arange(len(z), device=z.device)) % places_in_all
        features = torch.where(sound.unsqueeze(1), z, 0.0)
        kept = torch.where(sound.unsqueeze(1), targets, 0.0) if soft else torch.where(sound, targets, -1)
        self._write(places, features, kept)
        self.memory_next.add_(len(z)).remainder_(places_in_all)

    def _write(self, places: Tensor, features: Tensor, targets: Tensor) -> None:
        self.memory_features.index_copy_(0, places, features)
        if targets.ndim == 2:
            self.memory_memberships.index_copy_(0, places, targets.to(self.memory_memberships.dtype))
        else:
            self.memory_labels.index_copy_(0, places, targets)
