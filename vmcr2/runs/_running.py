"""The epochs of a run in its folder: lines of metrics, callbacks, checkpoints, and what ends the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .._shared import CollapseWarning
from ..distributed import EndedByAnother
from ..training import TrainingError
from ._callbacks import Callbacks
from ._checkpoint import Position, load_checkpoint, save_checkpoint
from ._early_stopping import EarlyStopping
from ._extend import earlier_ends
from ._folder import RunFolder
from ._interrupts import Interrupts
from ._ranks import noticing_losses
from ._run import Run

if TYPE_CHECKING:
    from ._trainer import Trainer

_START = 0.2  # part of the run after which features must have left a collapsed start


def run_epochs(trainer: Trainer, folder: RunFolder, callbacks: Callbacks, for_report: bool) -> Run:
    """Train from the last checkpoint, or from the start; measure, and write the results."""
    running = _Running(trainer, folder, callbacks)
    try:
        ranks = trainer.ranks
        with noticing_losses(ranks, folder), Interrupts(patient=ranks.count > 1) as interrupts:
            running.train(interrupts)
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
        self.ranks = trainer.ranks
        self.config, self.epochs = trainer.config, trainer.config.optim.epochs
        self.position = load_checkpoint(folder, trainer.step, callbacks.note)
        self.ranks.copy_first([*trainer.step.parameters, *trainer.network.buffers()])
        images = (self.epochs - self.position.epoch) * trainer.steps_per_epoch * trainer.batch_size
        self.loop = trainer.loop(images, callbacks.note)
        self.loop.seconds, self.loop.spent = self.position.seconds, self.position.spent
        self.ends = self.ranks.from_first(lambda: earlier_ends(folder))
        self.early: EarlyStopping | None = None
        if self.config.run.patience:
            self.early = EarlyStopping(self.config, folder, trainer.step, max(self.ends, default=0))
        self.saved = time.monotonic()
        self.said_ill = False
        self.stopped_by = ""
        self.error: BaseException | None = None

    @property
    def seconds(self) -> float:
        """Of training, so far."""
        return self.loop.seconds

    def train(self, interrupts: Interrupts) -> None:
        """To the last epoch, or to where something ends the run. The checkpoint is then of that place."""
        first, steps = self.position.epoch, self.loop.steps_per_epoch
        if self.ranks.leads:
            with self.folder.writing():
                self.folder.checkpoint.parent.mkdir(exist_ok=True)  # somebody may have removed damaged ones
                damaged = self.folder.keep_metrics(first)
            if damaged:
                self.callbacks.note(f"{self.folder.metrics}: {damaged} damaged lines are left out", None)
        self.callbacks.started(self.config, self.folder.path, first)
        if self.position.stopped_by and first not in self.ends:  # it was killed while it was measured
            self.stopped_by = self.position.stopped_by
            self._stop_if_asked(interrupts)
            return
        step = self.position.step - first * steps
        if step:
            self.callbacks.note(f"goes on in epoch {first + 1}, after step {step} of {steps}", None)
        elif first in self.ends and "stopped_by" not in self.ends[first]:  # nothing latches after a last epoch
            self.loop.latch_if_due(self.position.step)
        try:
            done = self.loop.run(
                first,
                first_step=step,
                trained=self._trained,
                ended=lambda epoch: self._ended(epoch, self.ranks.any(interrupts.asked())),
                asked_to_stop=lambda: self.ranks.any_lately(interrupts.asked()),
            )
        except TrainingError as error:
            raise TrainingError(f"{error}; the checkpoint, if there is one, is from an earlier epoch") from error
        if done % steps:
            self._save(Position(done // steps, done, self.loop.seconds, self.loop.spent))
        if self.error is not None:
            raise self.error
        self._stop_if_asked(interrupts)

    def _stop_if_asked(self, interrupts: Interrupts) -> None:
        """In all processes, if one of them was asked."""
        if self.ranks.any(interrupts.asked()):
            interrupts.ask()
            self.ranks.meet_to_stop()
        interrupts.stop_if_asked()

    def outcome(self) -> dict[str, Any]:
        """Put the best state back, if the run has patience; what the summary says about how the run ended."""
        found: dict[str, Any] = {}
        done, by = self.position.epoch, self.stopped_by
        if by:
            found = {"epochs": done, "planned_epochs": self.epochs, "stopped_by": by}
        if self.early is not None:
            found |= self.early.restore()
        if by == "callback":
            self.callbacks.note(f"a callback stopped the run after epoch {done}", None)
        if "best_epoch" in found:
            why = f"stopped after epoch {done}: " if by == "patience" else ""
            best = found["best_epoch"]
            self.callbacks.note(f"{why}the held-out accuracy was best after epoch {best}, whose weights are kept", None)
        return found

    def _trained(self, epoch: int, spent: float) -> None:
        """After an epoch's steps: its line of metrics, if it has one, to the folder and to callbacks."""
        own = self.trainer.record(self._stands_after(epoch), spent, self.loop)
        record = self.ranks.from_first(lambda: own)  # all decide by the same figures
        if not record:
            return
        if self.ranks.leads:
            with self.folder.writing():
                self.folder.append(record)
        with self.folder.writing():
            waited, stop = self.early is not None and self.early.look(record), False
        try:
            stop = self.callbacks.epoch(record)
            self._look_for_collapse(record)
        except Exception as error:  # raised once the epoch is saved
            self.error = error
        stop, failed = self.ranks.from_first(lambda: (stop, self.error is not None))
        if failed and self.error is None:
            self.error = EndedByAnother()
        if (stop or waited) and epoch + 1 < self.epochs:
            self.stopped_by = "patience" if waited else "callback"

    def _look_for_collapse(self, record: dict[str, Any]) -> None:
        # at the start collapsed features are normal. Of a batch only R is judged: its R_c depends on its size
        if self.said_ill or record["epoch"] < _START * self.epochs:
            return
        if problem := self.trainer.problem(record["expansion"], None):
            self.said_ill = True
            self.callbacks.note(f"epoch {record['epoch']}: {problem}", CollapseWarning)

    def _ended(self, epoch: int, asked_to_stop: bool) -> bool:
        """After the epoch's latching: a checkpoint, if one is due. Returns whether the run ends here."""
        ends = bool(self.stopped_by) or self.error is not None or asked_to_stop
        due = time.monotonic() - self.saved >= self.config.run.checkpoint_seconds
        if self.early is not None and self.early.best is not None:  # so that a resumed run does not lie behind its best
            due = due or self.early.best.epoch == epoch + 1
        self.position = self._stands_after(epoch)
        if ends or due or epoch + 1 == self.epochs:
            self._save(self.position)
        return ends

    def _save(self, position: Position) -> None:
        with self.folder.writing():
            save_checkpoint(self.folder, self.trainer.step, position)
        self.saved = time.monotonic()

    def _stands_after(self, epoch: int) -> Position:
        steps = (epoch + 1) * self.loop.steps_per_epoch
        return Position(epoch + 1, steps, self.loop.seconds, stopped_by=self.stopped_by)
