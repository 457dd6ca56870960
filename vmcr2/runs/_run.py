"""A run as others see it: the listener that follows it, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ..data import Pictures, Split
from ..training import Numerics, embed
from ._config import Config


class Listener(Protocol):
    """Follows a run: is told when it starts, after epochs, and about problems."""

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Before the first epoch."""

    def epoch(self, record: dict[str, Any]) -> None:
        """After every epoch that has a line of metrics, with it."""

    def note(self, text: str) -> None:
        """Something that a person should know, in a sentence."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    config: Config
    summary: dict[str, Any]
    model: nn.Module
    classifier: NearestSubspace
    objective: nn.Module = field(repr=False)
    """The loss with its state: the dictionary and codes of V-MCR², the head of cross-entropy, a memory."""
    head: nn.Linear | None = field(default=None, repr=False)
    """The objective's linear layer on the features, if it has one."""

    @property
    def readout(self) -> str:
        """What :meth:`predict` goes by, "head" or "subspace". Runs of earlier versions go by the nearest subspace."""
        return str(self.summary.get("readout", "subspace"))

    def features(self, images: Tensor) -> Tensor:
        """Unit features (m, d) of uint8 images (m, channels, height, width), un-augmented and in evaluation mode."""
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4:
            got = f"{images.dtype}, {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a uint8 tensor (m, channels, height, width), 0 to 255; got {got}")
        device = next(self.model.parameters()).device
        labels = torch.zeros(len(images), dtype=torch.int64)
        pictures = Pictures(Split(images, labels), self.config.data, seed=self.config.run.seed, device=device)
        return embed(self.model, pictures, Numerics.choose(device, self.config.run.precision))

    def predict(self, images: Tensor) -> Tensor:
        """The class of each image by the run's read-out."""
        features = self.features(images)
        if self.readout == "subspace" or self.head is None:
            return self.classifier.predict(features)
        with torch.no_grad():
            logits: Tensor = self.head(features)
        return logits.argmax(1)
