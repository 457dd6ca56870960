"""Makes a run in a worker. In a module of its own, because a worker cannot import ``__main__``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmcr2.runs import write_text
from vmcr2.sweep import Job, Outcome, Runner, prune

from ..ledger.finals import open_whole
from ._trial import BY_VIEWS, Trial
from ._views import by_views


class Maker:
    """In a worker: a run with a hold-out cannot open the test images."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._blind, self._by_views, self._whole = Runner(), _RunnerByViews(), Runner(open_whole)

    def __call__(self, trial: Trial, told_to_stop: Callable[[], bool]) -> Outcome:
        """Train, measure, and keep the figures alone."""
        folder = self._runs / f"{trial.study}-{trial.name}".replace(" ", "_").replace("=", "")
        runner = self._blind if trial.config.data.holdout else self._whole
        if trial.study in BY_VIEWS:
            runner = self._by_views
        outcome = runner(Job(trial.config, folder, for_report=False), told_to_stop)
        if outcome.lost is None:
            prune(folder)
        return outcome


class _RunnerByViews(Runner):
    """Its runs are measured by many views too."""

    def more_figures(self, job: Job) -> dict[str, Any]:
        """They need the weights, which are not kept: so they are in the folder, for a line that a kill took."""
        kept = job.folder / "views.json"
        if not kept.exists():
            write_text(kept, json.dumps(by_views(job.folder, self.source(job.config))))
        return {"holdout_by_views": json.loads(kept.read_text())}
