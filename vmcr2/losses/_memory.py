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

    def _make_memory(self, rows: int, dim: int, soft_classes: int | None = None) -> None:
        """With labels, or with memberships in so many classes."""
        self.register_buffer("memory_features", torch.zeros(rows, dim, dtype=precise_dtype()))
        if soft_classes is None:
            self.register_buffer("memory_labels", torch.full((rows,), -1, dtype=torch.int64))
        else:
            self.register_buffer("memory_memberships", torch.zeros(rows, soft_classes, dtype=precise_dtype()))
        self.register_buffer("memory_next", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def _remember(self, z: Tensor, classes: Tensor) -> None:
        """Write at most as many rows as there are places over the oldest ones, in place.

        ``classes`` are their labels (m,), or memberships (m, k) where the memory has these.
        """
        refuse_transforms(z)
        places_in_all = len(self.memory_features)
        z = z.to(self.memory_features.dtype)
        sound = torch.isfinite(z.sum(1))  # a row with NaN would spoil all later steps: its place stays empty
        places = (self.memory_next + torch.arange(len(z), device=z.device)) % places_in_all
        features = torch.where(sound.unsqueeze(1), z, 0.0)
        soft = classes.ndim == 2
        kept = torch.where(sound.unsqueeze(1) if soft else sound, classes, 0.0 if soft else -1)
        self._write(places, features, kept)
        self.memory_next.add_(len(z)).remainder_(places_in_all)

    def _write(self, places: Tensor, features: Tensor, classes: Tensor) -> None:
        self.memory_features.index_copy_(0, places, features)
        of = self.memory_memberships if classes.ndim == 2 else self.memory_labels
        of.index_copy_(0, places, classes.to(of.dtype))
