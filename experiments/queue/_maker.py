"""Makes a piece in a worker. In a module of its own, because a worker cannot import ``__main__``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmcr2.sweep import Outcome

from ..defaults._maker import Maker as OfStudies
from ..ledger.finals import Task, Trainer
from ._pieces import Piece


class Maker:
    """In a worker: runs of studies and of the ledger, each with its own way to the data."""

    def __init__(self, runs: Path) -> None:
        self._of_studies, self._of_ledger = OfStudies(runs / "studies"), Trainer()

    def __call__(self, piece: Piece, told_to_stop: Callable[[], bool]) -> Outcome:
        """Train and measure."""
        if isinstance(piece.source, Task):
            return self._of_ledger(piece.source, told_to_stop)
        return self._of_studies(piece.source, told_to_stop)
