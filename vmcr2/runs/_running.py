"""The epochs of a run in its folder: lines of metrics, callbacks, checkpoints, and what ends the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .._shared import CollapseWarning
from ..training import TrainingError
from ._callbacks import Callbacks
from ._checkpoint import Position, load_checkpoint, save_checkpoint
from ._folder import RunFolder
from ._run import Run

if TYPE_CHECKING:
    from ._trainer import Trainer

_START = 0.2  # part of the run after which features must have left a collapsed start


def run_epochs(trainer: Trainer, folder: RunFolder, callbacks: Callbacks, for_report: bool) -> Run:
    """Train from the last checkpoint, or from the start; measure, and write the results."""
    running = _Running(trainer, folder, callbacks)
    try:
        running.train()
        run = trainer.finish(folder, running.seconds, for_report, running.outcome())
        if "warning" in run.summary and not running.said_ill:
            callbacks.note(run.summary["warning"], CollapseWarning)
    except BaseException as error:
        callbacks.failed(error)
        raise
    callbacks.finished(run)
    return run


class _Running:
    """A run while it trains."""

    def __init__(self, trainer: Trainer, folder: RunFolder, callbacks: Callbacks) -> None:
        self.trainer, self.folder, self.callbacks = trainer, folder, callbacks
        self.config, self.epochs = trainer.config, trainer.config.optim.epochs
        self.position = Position(0, 0, 0.0)
        if folder.checkpoint.exists():
            self.position = load_checkpoint(folder.checkpoint, trainer.step)
        images = (self.epochs - self.position.epoch) * trainer.steps_per_epoch * trainer.batch_size
        self.loop = trainer.loop(images, callbacks.note)
        self.loop.seconds, self.loop.spent = self.position.seconds, self.position.spent
        self.saved = time.monotonic()
        self.said_ill = False
        self.stopped_by = ""
        self.error: Exception | None = None

    @property
    def seconds(self) -> float:
        """Of training, so far."""
        return self.loop.seconds

    def train(self) -> None:
        """To the last epoch, or to where something ends the run. The checkpoint is then of that place."""
        first = self.position.epoch
        self.folder.keep_metrics(first)
        self.callbacks.started(self.config, self.folder.path, first)
        if self.position.stopped_by:  # it was killed while it was measured
            self.stopped_by = self.position.stopped_by
            return
        step = self.position.step - first * self.loop.steps_per_epoch
        try:
            self.loop.run(first, first_step=step, trained=self._trained, ended=self._ended)
        except TrainingError as error:
            raise TrainingError(f"{error}; the checkpoint, if there is one, is from an earlier epoch") from error
        if self.error is not None:
            raise self.error
        if self.stopped_by == "callback":
            self.callbacks.note(f"a callback stopped the run after epoch {self.position.epoch}", None)

    def outcome(self) -> dict[str, Any]:
        """What the summary says about how the run ended."""
        if not self.stopped_by:
            return {}
        return {"epochs": self.position.epoch, "planned_epochs": self.epochs, "stopped_by": self.stopped_by}

    def _trained(self, epoch: int, spent: float) -> None:
        """After an epoch's steps: its line of metrics, if it has one, to the folder and to callbacks."""
        record = self.trainer.record(self._stands_after(epoch), spent, self.loop)
        if not record:
            return
        self.folder.append(record)
        try:
            stop = self.callbacks.epoch(record)
            self._look_for_collapse(record)
        except Exception as error:  # raised once the epoch is saved
            self.error = error
            return
        if stop and epoch + 1 < self.epochs:
            self.stopped_by = "callback"

    def _look_for_collapse(self, record: dict[str, Any]) -> None:
        # at the start collapsed features are normal. Of a batch only R is judged: its R_c depends on its size
        if self.said_ill or record["epoch"] < _START * self.epochs:
            return
        if problem := self.trainer.problem(record["expansion"], None):
            self.said_ill = True
            self.callbacks.note(f"epoch {record['epoch']}: {problem}", CollapseWarning)

    def _ended(self, epoch: int) -> bool:
        """After the epoch's latching: a checkpoint, if one is due. Returns whether the run ends here."""
        self.position = self._stands_after(epoch)
        ends = bool(self.stopped_by) or self.error is not None
        due = time.monotonic() - self.saved >= self.config.run.checkpoint_seconds
        if ends or due or epoch + 1 == self.epochs:
            save_checkpoint(self.folder.checkpoint, self.trainer.step, self.position)
            self.saved = time.monotonic()
        return ends

    def _stands_after(self, epoch: int) -> Position:
        steps = (epoch + 1) * self.loop.steps_per_epoch
        return Position(epoch + 1, steps, self.loop.seconds, stopped_by=self.stopped_by)
