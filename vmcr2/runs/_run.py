"""A finished run as others see it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from ..classifiers import NearestSubspace
from ..data import ROWS, Preparation, Split
from ..training import Numerics, embed
from ._config import Config
from ._folder import RunFolder
from ._samples import samples_of


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

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of classes 0, 1, …; numbers, if the run is of an earlier version."""
        return RunFolder(self.folder).class_names or tuple(map(str, range(len(self.classifier.bases))))

    def features(self, inputs: Any) -> Tensor:
        """Unit features (m, d), un-augmented and in evaluation mode.

        Of pictures, a uint8 tensor (m, channels, height, width); of a table's rows, as :meth:`prepare` takes them.
        """
        x = self._checked_images(inputs) if self._sees_pictures else self.prepare(inputs)
        device = next(self.model.parameters()).device
        labels = torch.zeros(len(x), dtype=torch.int64)
        samples = samples_of(Split(x, labels), self.config, device)
        return embed(self.model, samples, Numerics.choose(device, self.config.run.precision))

    def prepare(self, rows: Any) -> Tensor:
        """Rows of a table as the network sees them, float32 (m, columns).

        Args:
            rows: a pandas DataFrame, a mapping from column names to values, or a list of dicts, with the columns that
                the run was trained on; or a float32 tensor that is prepared already.
        """
        if isinstance(rows, Tensor):
            return rows.to(torch.float32)
        kept = RunFolder(self.folder).preparation
        if not kept.exists():
            raise UserError(f"{self.folder} has no preparation.json: its rows are not a table's; give a tensor")
        return torch.from_numpy(Preparation.from_json_dict(json.loads(kept.read_text())).transform(rows))

    @property
    def _sees_pictures(self) -> bool:
        return self.config.data.name not in ROWS

    @staticmethod
    def _checked_images(images: Any) -> Tensor:
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4:
            got = f"{images.dtype}, {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a uint8 tensor (m, channels, height, width), 0 to 255; got {got}")
        return images

    def predict(self, inputs: Any) -> Tensor:
        """The class of each picture or row by the run's read-out; :attr:`class_names` has their names."""
        features = self.features(inputs)
        if self.readout == "subspace" or self.head is None:
            return self.classifier.predict(features)
        with torch.no_grad():
            logits: Tensor = self.head(features)
        return logits.argmax(1)
