"""Early stopping: the state with the best held-out accuracy is kept in the run folder, and ends up as the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._shared import UserError
from ..training import Step
from ._checkpoint import load_weights, weights_of
from ._config import Config
from ._folder import RunFolder
from ._measure import choose_readout
from ._records import DamagedError
from ._tensor_files import read_tensors, read_tensors_with_metadata, write_tensors

_MEASUREMENTS = 5
"""How often a run is measured, at least, while its patience lasts."""


class Best(NamedTuple):
    """A measurement on held-out samples."""

    epoch: int
    accuracy: float


def check_patience(config: Config) -> None:
    """Patience without held-out samples is a :class:`UserError`: on the test set nothing is chosen."""
    if config.run.patience and not (config.data.holdout or config.data.validation):
        raise UserError(
            f"patience is {config.run.patience}, but nothing is held out to measure on: "
            "set holdout (--holdout N), or validation if the data have validation samples"
        )


def longest_interval(patience: int) -> int:
    """The most epochs between measurements: less often, patience would mean something else than it says.

    >>> longest_interval(3), longest_interval(20)
    (1, 4)
    """
    return max(1, patience // _MEASUREMENTS)


class EarlyStopping:
    """Remembers the best state of a run with ``patience``. It lives in the run folder, so it outlasts a kill.

    A best state from an epoch after the last checkpoint is right too: the run comes to it again.

    Args:
        config: of the run.
        folder: likewise.
        step: holds the state.
        since: the epoch at which the run was extended last, if it was: patience counts from there.
    """

    def __init__(self, config: Config, folder: RunFolder, step: Step, since: int) -> None:
        self.config, self.path, self.step, self.since = config, folder.best, step, since
        self.best: Best | None = step.ranks.from_first(self._read)

    def _read(self) -> Best | None:
        if not self.path.exists():
            return None
        try:
            best = Best(**json.loads(read_tensors_with_metadata(self.path)[1]["best"]))
            return Best(int(best.epoch), float(best.accuracy))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DamagedError(
                f"{self.path}, the best state so far, is damaged: remove it, and --resume goes on, and keeps the best "
                "of the epochs that are left"
            ) from error

    def look(self, record: dict[str, Any]) -> bool:
        """Take a line of metrics into account. Returns whether the run has been without a better one for too long."""
        if "holdout_accuracy" not in record:
            return False
        now = Best(record["epoch"], held_out_accuracy(self.config, record))
        if self.best is None or now.accuracy > self.best.accuracy:
            if self.step.ranks.leads:
                write_tensors(self.path, weights_of(self.step), {"best": json.dumps(now._asdict())})
            self.best = now
        return now.epoch - max(self.best.epoch, self.since) >= self.config.run.patience

    def restore(self) -> dict[str, int]:
        """Put the best state back, and say which epoch's it is."""
        if self.best is None:  # the run was ended before it was measured once
            return {}
        load_weights(self.path, self.step.ranks.from_first(lambda: read_tensors(self.path)), self.step)
        return {"best_epoch": self.best.epoch}


def held_out_accuracy(config: Config, record: Mapping[str, Any]) -> float:
    """Of what the run would predict by, from a line of metrics that has a measurement."""
    figures = {"holdout_accuracy": record["holdout_accuracy"]}
    if "holdout_head_accuracy" in record:
        figures["head_accuracy"] = record["holdout_head_accuracy"]
    by_head = choose_readout(config.run.readout, figures) == "head"
    return float(figures["head_accuracy" if by_head else "holdout_accuracy"])
