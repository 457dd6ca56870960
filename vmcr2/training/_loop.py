"""Algorithm 1 over epochs: order, steps, latching. Files and figures are its callers'."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ._engine import Engine
from ._schedule import learning_rate
from ._step import Step


class TrainingError(RuntimeError):
    """The run cannot go on: something is not finite any more."""


class Loop:
    """The epochs of a run.

    Args:
        step: over the training set.
        engine: runs it.
        order: the order of samples in an epoch, a function of its number. Samples that do not fill a batch are left
            out of it.
        steps_per_epoch: the batches of an order; by default those that all samples fill.
    """

    def __init__(
        self, step: Step, engine: Engine, order: Callable[[int], Tensor], steps_per_epoch: int | None = None
    ) -> None:
        self.step, self.engine = step, engine
        self._order_of = order
        self._order = (-1, step.index, step.index)
        self._foreseen = -1
        """The step of the run that the last one has looked ahead to."""
        self.batch_size = len(step.index)
        self.steps_per_epoch = steps_per_epoch or max(1, len(step.samples) // self.batch_size)
        self.seconds = 0.0
        """Spent on steps and latching so far."""
        self.spent = 0.0
        """Those of the steps of an epoch that is not done yet."""

    def run(
        self,
        first_epoch: int,
        *,
        first_step: int = 0,
        trained: Callable[[int, float], None] = lambda epoch, seconds: None,
        ended: Callable[[int], bool] = lambda epoch: False,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """All epochs from ``first_epoch`` on, counted from 0, the first of them from ``first_step`` on.

        ``trained`` is called after an epoch's steps with its number and its seconds, before latching: figures are then
        of the dictionary that the steps have made. ``ended`` is called after latching, and stops the run where it
        returns True. ``asked_to_stop`` is called between two steps of an epoch, and stops the run there. It must not
        wait for the device. Returns the number of steps of the run that are done.
        """
        epochs = self.step.optim.epochs
        if first_epoch == first_step == 0:
            self.latch_if_due(0)
        for epoch in range(first_epoch, epochs):
            start = time.perf_counter()
            done = self.train_epoch(epoch, first_step, asked_to_stop)
            first_step = 0
            self._spend(start)
            if done < self.steps_per_epoch:
                return epoch * self.steps_per_epoch + done
            spent, self.spent = self.spent, 0.0
            trained(epoch, spent)
            if epoch + 1 < epochs:
                start = time.perf_counter()
                self.latch_if_due((epoch + 1) * self.steps_per_epoch)
                self.seconds += time.perf_counter() - start
            if ended(epoch):
                return (epoch + 1) * self.steps_per_epoch
        return epochs * self.steps_per_epoch

    def _spend(self, start: float) -> None:
        took = time.perf_counter() - start
        self.seconds += took
        self.spent += took

    def train_epoch(self, epoch: int, first: int = 0, asked_to_stop: Callable[[], bool] = lambda: False) -> int:
        """One pass over the training set in whole batches, with the latching that falls due inside it.

        It begins with batch ``first``, and ends early where ``asked_to_stop`` says so. Returns the number of batches
        that are done. It ends with the only synchronisation of the epoch: whether anything in it was not finite.
        """
        step, size, steps = self.step, self.batch_size, self.steps_per_epoch
        if step.begin(epoch):
            self.engine.renew()
        order, here, own = self.order(epoch), self._order[2], step.ranks.own
        made = first
        while made < steps:
            done = epoch * steps + made
            if made:
                self.latch_if_due(done)
            step.objective.between_steps(done)
            batch = slice(made * size, (made + 1) * size)
            step.samples.bring(own(here[batch]))
            # the order of the next epoch is drawn while the device is still busy
            following = order[batch.stop : batch.stop + size] if made + 1 < steps else self.order(epoch + 1)[:size]
            step.take(order[batch], following, foreseen=self._foreseen == done)
            step.rate.fill_(learning_rate(step.optim, done, steps))
            self.engine()
            self._foreseen = done + 1
            made += 1
            if made < steps:
                if asked_to_stop():
                    break
                step.samples.expect(own(here[made * size : (made + 1) * size]))
        if step.broke():
            raise TrainingError(
                f"training broke in epoch {epoch + 1}, not finite: {what_broke(step)}. Lower lr or loss_scale"
            )
        return made

    def order(self, epoch: int) -> Tensor:
        """The epoch's order of samples, on the device."""
        if self._order[0] != epoch:
            here = self._order_of(epoch)
            self._order = epoch, here.to(self.step.numerics.device), here
        return self._order[1]

    def latch(self) -> None:
        """Renew the objective's state from the whole training set, un-augmented and in evaluation mode."""
        self.step.objective.latch(self.step.embed(), self.step.samples.labels)
        self._foreseen = -1  # of the state before

    def latch_if_due(self, steps: int) -> None:
        """Latch where the objective asks for it after so many steps of the run."""
        if self.step.objective.latch_due(steps, self.steps_per_epoch):
            self.latch()


@torch.no_grad()
def batch_figures(step: Step) -> dict[str, float]:
    """The loss and its terms on the latest batch, whose features were made in training mode."""
    figures = step.objective.terms(step.features, step.seen)
    values = torch.stack([value.double() for value in figures.values()]).tolist()  # one synchronisation for all
    return dict(zip(figures, values, strict=True))


def what_broke(step: Step) -> str:
    """Which terms are not finite on the batch that broke first, once one is known to have."""
    if not bool(step.broken):
        return "the network's weights, after the last step"
    if not bool(torch.isfinite(step.features).all()):
        return "the features: the network's weights or activations overflowed"
    figures = batch_figures(step)
    wrong = step.objective.not_finite() + [name for name, value in figures.items() if not math.isfinite(value)]
    if wrong:
        return ", ".join(wrong)
    return "the gradient of the loss, or a factorisation in it; the terms themselves are finite"
