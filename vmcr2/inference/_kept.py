"""Training samples that a run keeps: features in half precision and thumbnails, to find the nearest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import UserError

_ROWS = 500  # at a time


class Neighbors(NamedTuple):
    """The nearest kept training samples of n samples, the nearest first."""

    cosines: Tensor
    """(n, count) similarity of the features, 1 is the same direction"""
    labels: Tensor
    """(n, count) the classes' numbers"""
    places: Tensor
    """(n, count) the samples' places in the training set"""
    names: list[list[str]]
    """the classes' names"""
    pictures: Tensor | None
    """(n, count, channels, height, width) thumbnails; None for rows of a table"""

    def part(self, rows: slice, count: int | None = None) -> Neighbors:
        """Those of some samples; of each the first ``count``, or all."""
        return Neighbors(
            self.cosines[rows, :count],
            self.labels[rows, :count],
            self.places[rows, :count],
            [own[:count] for own in self.names[rows]],
            None if self.pictures is None else self.pictures[rows, :count],
        )


@dataclass(frozen=True)
class KeptSamples:
    """Features of training samples, with what is needed to show them."""

    features: Tensor
    """(n, d), float16"""
    labels: Tensor
    """(n,)"""
    index: Tensor
    """(n,) places in the training set"""
    pictures: Tensor | None
    """uint8 (n, channels, height, width), at most 32×32"""

    def nearest(self, z: Tensor, count: int, class_names: tuple[str, ...]) -> Neighbors:
        """Of features (n, d), by cosine."""
        if count < 1:
            raise UserError(f"count must be at least 1, got {count}")
        count = min(count, len(self.labels))
        kept = self.features.to(z.device, torch.float32)
        kept = torch.nn.functional.normalize(kept, dim=1)
        found = [(part.float() @ kept.T).topk(count, dim=1) for part in torch.split(z, _ROWS)]
        cosines = torch.cat([one.values for one in found]).cpu()
        at = torch.cat([one.indices for one in found]).cpu()
        labels = self.labels[at]
        names = [[class_names[label] for label in row] for row in labels.tolist()]
        pictures = self.pictures[at] if self.pictures is not None else None
        return Neighbors(cosines, labels, self.index[at], names, pictures)

    def tensors(self) -> dict[str, Tensor]:
        """To be written into a file."""
        own = {"features": self.features, "labels": self.labels, "index": self.index}
        return own | ({"pictures": self.pictures} if self.pictures is not None else {})

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> KeptSamples:
        """What :meth:`tensors` gave."""
        return cls(tensors["features"], tensors["labels"], tensors["index"], tensors.get("pictures"))
