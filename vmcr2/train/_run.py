"""What a run is to others: its listener while it goes on, its result, and its failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ._config import Config
from ._evaluate import embed
from ._objective import Objective


class Listener(Protocol):
    """Who wants to see a run go on."""

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
    objective: Objective = field(repr=False)

    def features(self, images: Tensor) -> Tensor:
        """Unit features (m, d) of uint8 images (m, channels, height, width), un-augmented and in evaluation mode."""
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4:
            got = f"{images.dtype}, {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a uint8 tensor (m, channels, height, width), 0 to 255; got {got}")
        return embed(self.config, self.model, images, next(self.model.parameters()).device)

    def predict(self, images: Tensor) -> Tensor:
        """The class of each image by its nearest subspace."""
        return self.classifier.predict(self.features(images))


class TrainingError(RuntimeError):
    """The run cannot go on: the loss is not finite any more."""
