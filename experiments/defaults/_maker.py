"""Makes a run in a worker. In a module of its own, because a worker cannot import ``__main__``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmcr2.sweep import Job, Outcome, Runner, prune

from ..ledger.finals import open_whole
from ._trial import BY_VIEWS, Trial
from ._views import by_views


class Maker:
    """In a worker: a run with a hold-out cannot open the test images."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._blind, self._whole = Runner(), Runner(open_whole)

    def __call__(self, trial: Trial, told_to_stop: Callable[[], bool]) -> Outcome:
        """Train, measure, and keep the figures alone."""
        folder = self._runs / f"{trial.study}-{trial.name}".replace(" ", "_").replace("=", "")
        runner = self._blind if trial.config.data.holdout else self._whole
        outcome = runner(Job(trial.config, folder, for_report=False), told_to_stop)
        if outcome.lost is None:
            if trial.study in BY_VIEWS and "failed" not in outcome.figures:
                outcome.figures["holdout_by_views"] = by_views(folder, runner.source(trial.config))
            prune(folder)
        return outcome
