"""What a run is to others: its listener while it goes on, its result, and its failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ..classifiers import NearestSubspace
from ._config import Config
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


class TrainingError(RuntimeError):
    """The run cannot go on: the loss is not finite any more."""
