"""A ring of past features: a fixed number of rows, of which a batch replaces the oldest."""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared import PreciseBuffers, precise_dtype
from ..functional import refuse_transforms


class RememberedFeatures(PreciseBuffers):
    """Features and labels of past batches as buffers; nothing here waits for the device."""

    memory_features: Tensor
    memory_labels: Tensor
    memory_next: Tensor

    def _make_memory(self, rows: int, dim: int) -> None:
        self.register_buffer("memory_features", torch.zeros(rows, dim, dtype=precise_dtype()))
        self.register_buffer("memory_labels", torch.full((rows,), -1, dtype=torch.int64))
        self.register_buffer("memory_next", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def _remember(self, z: Tensor, labels: Tensor) -> None:
        """Write at most as many rows as there are places over the oldest ones, in place."""
        refuse_transforms(z)
        places_in_all = len(self.memory_labels)
        z = z.to(self.memory_features.dtype)
        sound = torch.isfinite(z.sum(1))  # a row with NaN would spoil all later steps: its place stays empty
        places = (self.memory_next + torch.arange(len(z), device=z.device)) % places_in_all
        features = torch.where(sound.unsqueeze(1), z, 0.0)
        self._write(places, features, torch.where(sound, labels, -1))
        self.memory_next.add_(len(z)).remainder_(places_in_all)

    def _write(self, places: Tensor, features: Tensor, labels: Tensor) -> None:
        self.memory_features.index_copy_(0, places, features)
        self.memory_labels.index_copy_(0, places, labels)
