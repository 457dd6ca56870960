"""Makes the run of one trial, and stops it early if others were better by then. It imports Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import optuna

from ..runs import Callback, Config, UserError, held_out_accuracy
from ._database import DATABASE_ERRORS, open_database, quiet
from ._runs import Job, Runner

TENTHS = 10
"""Trials are compared at tenths of their runs, because their numbers of epochs may differ."""
_COMPLETE_FIRST = 5
"""So many trials end before one is stopped early: Optuna's own number."""


@dataclass(frozen=True)
class TrialJob(Job):
    """A run to make for a trial."""

    number: int = 0


class TrialRunner(Runner):
    """Makes runs one after another. With ``prune``, each tells the database how good it is on the way."""

    def __init__(self, url: str, study: str, prune: bool) -> None:
        super().__init__()
        self._url, self._name, self._prune = url, study, prune
        self._study: optuna.Study | None = None

    def callbacks(self, job: Job) -> list[Callback]:
        """What stops the trial early."""
        if not self._prune or not isinstance(job, TrialJob):
            return []
        return [Pruning(self._trial(job.number), job.config)]

    def _trial(self, number: int) -> optuna.Trial:
        if self._study is None:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=_COMPLETE_FIRST)
            self._storage = open_database(self._url)
            with quiet():
                # nothing is drawn here; the sampler that draws nothing costs nothing
                sampler = optuna.samplers.RandomSampler()
                self._study = optuna.load_study(
                    study_name=self._name, storage=self._storage, sampler=sampler, pruner=pruner
                )
        study_id = self._storage.get_study_id_from_name(self._name)
        return optuna.Trial(self._study, self._storage.get_trial_id_from_study_id_trial_number(study_id, number))


class Pruning(Callback):
    """Reports the held-out accuracy at every tenth of a run. It ends a run whose best is below the median of others."""

    def __init__(self, trial: optuna.Trial, config: Config) -> None:
        self._trial, self._config = trial, config
        self._reported = {0}

    def epoch(self, record: dict[str, Any]) -> bool:
        """True where the run is not worth its time."""
        tenth = TENTHS * record["epoch"] // self._config.optim.epochs
        if "holdout_accuracy" not in record or tenth in self._reported:
            return False
        self._reported.add(tenth)
        try:
            self._trial.report(held_out_accuracy(self._config, record), tenth)
            return self._trial.should_prune()
        except optuna.exceptions.UpdateFinishedTrialError as error:
            raise UserError("this worker was silent for so long that another one has taken the trial over") from error
        except DATABASE_ERRORS:  # away for a moment: the run goes on
            return False
